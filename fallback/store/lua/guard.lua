-- Comes before every script of the store. All keys of a cluster are in one
-- hash slot:
--
--   meta        identity (of the store; none while it was only begun), settings (of the cluster), ttl (of its sessions, ms),
--               generation, server (that it belongs to), life (of that server as a master), version,
--               beat (registrations and renewals so far), floor (version at which the generation began), quarantine (its end, ms),
--               clock (when a session or a quarantine last began, ms), lag (by how
--               much the server's clock was set back since it said so, ms),
--               placements, placed (version of their last change)
--   partitions  partition -> netstrings: epoch, owner, epoch of the latest move that
--               wrote locks (or that there are none), then key, holder, token of each residue
--   locks       partition -> what that move wrote
--   written     partition, id and text of each lock that is kept until it is removed,
--               all with the same score
--   writes      partition -> netstrings: epoch and number of the latest write of those
--   changes     partition, scored by the version of its last change
--   sessions    incarnation, scored by the end of its session (ms)
--   details     incarnation -> netstrings: name, addr, gossip, when it may join
--               the ring (ms)
--   stamps      incarnation, of a session or of one that ran out -> beat of its latest renewal
--   members     incarnation of a session or a tombstone, scored by the version of its last
--               change, which a renewal is not
--   released    incarnation, scored by the time of its release (ms)
--   gone        incarnation whose session ran out in this generation, scored alike
--   starts      name -> netstrings: its latest incarnation, how many before that one
--               in a row did not leave in order, when that one registered (ms)
--
-- Each of them but meta also holds the empty member, scored below all others, from the
-- generation's beginning to its end. So a key that is not there was lost.
--
-- Every script takes the generation that the caller knows, changes nothing if
-- it is another one, and means the same when it is run twice.
--
-- This file says whether the generation is over. prelude.lua, which follows it in every script but
-- renew.lua, then begins another one.
local META, PARTITIONS, LOCKS, WRITTEN, WRITES, CHANGES, SESSIONS, DETAILS, STAMPS, MEMBERS, RELEASED, GONE, STARTS = unpack(KEYS)
local EXPECTED, LEFT, KNOWN = unpack(ARGV, 1, 3)

-- A write that changes nothing and needs no memory. It fails on a master that
-- was demoted; and Redis, when it is full, carries on with a script whose first
-- write needs no memory, so that the store keeps working then.
redis.call('PERSIST', META)

local function int(n)
  return string.format('%.0f', n)
end

local meta = redis.call('HMGET', META, 'generation', 'server', 'life', 'version', 'quarantine', 'clock', 'lag', 'beat')
local generation = meta[1]
local version = tonumber(meta[4] or 0)
local quarantine = tonumber(meta[5] or 0)
local latest = tonumber(meta[6] or 0)
local lag = tonumber(meta[7] or 0)
local beat = tonumber(meta[8] or 0)

-- Generation: random data belongs to the server process that the caller
-- reaches now. Asking in each script, and not once per connection, also
-- catches a replica that was promoted under an open connection. A master that
-- was a replica meanwhile is told by master_replid2, which changes with each
-- promotion.
--
-- A master that still has the replication id which it had when it was identified is that one: each
-- process and each promotion makes another. So does the first replica that attaches, which ends
-- nothing. A replica has its master's.
local function id_of(info, name)
  local _, last = string.find(info, name, 1, true)
  return last and string.match(info, '^%x+', last + 1)
end
local replication = redis.call('INFO', 'replication')
local life = string.find(replication, 'role:master', 1, true) and id_of(replication, 'master_replid:')
local server = meta[2]
if not life or not server or meta[3] ~= life .. server then
  server = id_of(redis.call('INFO', 'server'), 'run_id:')
  if not server then
    return redis.error_reply('KEYWAY INFO server shows no run_id')
  end
  server = server .. (id_of(replication, 'master_replid2:') or '')
  if life and server == meta[2] then
    redis.call('HSET', META, 'life', life .. server)
  end
end

-- The store's clock stands still where the server's is set back: whatever began
-- before ends no later than it would have.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000) + lag
if now < latest then
  redis.call('HSET', META, 'lag', int(lag + latest - now))
  now = latest
end
local NOW = int(now)

-- A generation that the caller has left comes back with a master that was out
-- of sight: what has happened since is lost. So it is if the version is lower than
-- the caller knows: the server was set back with its memory, and so with its run id.
local present = redis.call('EXISTS', unpack(KEYS))
local over = meta[2] ~= server or present < #KEYS or string.find(LEFT, generation, 1, true)
  or redis.call('HLEN', PARTITIONS) ~= redis.call('ZCARD', CHANGES) -- both have each partition
  or EXPECTED == generation and tonumber(KNOWN) > version

local function live(inc)
  return inc ~= '' and redis.call('ZSCORE', SESSIONS, inc) and true or false
end

-- Notes that a session was registered or renewed.
local function stamp(inc)
  beat = beat + 1
  local text = int(beat)
  redis.call('HSET', META, 'clock', NOW, 'beat', text)
  redis.call('HSET', STAMPS, inc, text)
end

-- A reply that shows the store now, and what follows.
local function shows(...)
  return {'ok', generation, math.max(0, quarantine - now), version, beat, now, ...}
end
