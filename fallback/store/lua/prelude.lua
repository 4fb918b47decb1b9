-- Comes before every script of the store. All keys of a cluster are in one
-- hash slot:
--
--   meta        identity (of the store; none while it was only begun), settings (of the cluster), ttl (of its sessions, ms),
--               generation, server (that it belongs to), version,
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
local META, PARTITIONS, LOCKS, WRITTEN, WRITES, CHANGES, SESSIONS, DETAILS, STAMPS, MEMBERS, RELEASED, GONE, STARTS = unpack(KEYS)
local EXPECTED, LEFT, FRESH, TTL, CHANNEL, PUBLISH, NEW, IDENTITY, SETTINGS, KNOWN = unpack(ARGV, 1, 10)
local FIRST = 11 -- of the script's own arguments
local BATCH = 500 -- values handed to one command
local HOUR = 3600 * 1000 -- how long tombstones are kept, ms

-- A write that changes nothing and needs no memory. It fails on a master that
-- was demoted; and Redis, when it is full, carries on with a script whose first
-- write needs no memory, so that the store keeps working then.
redis.call('PERSIST', META)

local function int(n)
  return string.format('%.0f', n)
end

-- Generation: random data belongs to the server process that the caller
-- reaches now. Asking in each script, and not once per connection, also
-- catches a replica that was promoted under an open connection. A master that
-- was a replica meanwhile is told by master_replid2, which changes with each
-- promotion; master_replid would also change when the first replica attaches.
local info = redis.pcall('INFO', 'server', 'replication')
if type(info) ~= 'string' then -- before Redis 7.0
  info = redis.call('INFO', 'server') .. redis.call('INFO', 'replication')
end
local function id_of(name) -- plain, since a pattern is tried at each byte
  local _, last = string.find(info, name, 1, true)
  return last and string.match(info, '^%x+', last + 1)
end
local server = id_of('run_id:')
if not server then
  return redis.error_reply('KEYWAY INFO server shows no run_id')
end
server = server .. (id_of('master_replid2:') or '')

local meta = redis.call('HMGET', META, 'generation', 'server', 'version', 'floor', 'quarantine', 'clock', 'lag', 'identity', 'settings', 'ttl', 'beat')
local generation = meta[1]
local version = tonumber(meta[3] or 0)
local floor = tonumber(meta[4] or 0)
local quarantine = tonumber(meta[5] or 0)
local latest = tonumber(meta[6] or 0)
local lag = tonumber(meta[7] or 0)
local identity = meta[8]
local settings = meta[9] or SETTINGS
local length = tonumber(meta[10] or TTL) -- of a quarantine
local beat = tonumber(meta[11] or 0)

-- The store's clock stands still where the server's is set back: whatever began
-- before ends no later than it would have.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000) + lag
if now < latest then
  redis.call('HSET', META, 'lag', int(lag + latest - now))
  now = latest
end
local seconds = math.floor(now / 1000)

-- A generation that the caller has left comes back with a master that was out
-- of sight: what has happened since is lost. So it is if the version is lower than
-- the caller knows: the server was set back with its memory, and so with its run id.
local present = redis.call('EXISTS', unpack(KEYS))

-- The hint says what it is about, for those who know that already. One that gets lost
-- is made good by polling.
local function publish()
  redis.pcall(PUBLISH, CHANNEL, int(version))
end

local function begin()
  quarantine = now + length
  if NEW == '1' and present == 0 then
    quarantine = now
  end
  generation = FRESH
  version = math.max(version + 1, now * 1000)
  floor = version
  redis.call('HSET', META, 'settings', settings, 'ttl', int(length),
    'generation', generation, 'server', server, 'version', int(version),
    'floor', int(floor), 'quarantine', int(quarantine), 'clock', int(now))
  redis.call('DEL', LOCKS, WRITTEN, WRITES, CHANGES, SESSIONS, DETAILS, STAMPS, MEMBERS, GONE)
  local partitions = redis.call('HKEYS', PARTITIONS)
  for from = 1, #partitions, BATCH do
    local scores = {}
    for i = from, math.min(from + BATCH - 1, #partitions) do
      scores[#scores + 1] = int(version)
      scores[#scores + 1] = partitions[i]
    end
    redis.call('ZADD', CHANGES, unpack(scores))
  end
  for _, key in ipairs({PARTITIONS, LOCKS, WRITES, DETAILS, STAMPS, STARTS}) do
    redis.call('HSET', key, '', '')
  end
  for _, key in ipairs({CHANGES, SESSIONS, RELEASED, GONE}) do
    redis.call('ZADD', key, -1, '')
  end
  redis.call('ZUNIONSTORE', MEMBERS, 1, RELEASED, 'WEIGHTS', 0)
  redis.call('ZADD', MEMBERS, -1, '')
  redis.call('ZADD', WRITTEN, 0, '') -- members of one score are in the order of their bytes
  publish()
end

if meta[2] ~= server or present < #KEYS or string.find(LEFT, generation, 1, true)
  or redis.call('HLEN', PARTITIONS) ~= redis.call('ZCARD', CHANGES) -- both have each partition
  or EXPECTED == generation and tonumber(KNOWN) > version then
  begin()
elseif not identity and NEW == '1' and redis.call('HLEN', PARTITIONS) == 1 then
  quarantine = math.min(quarantine, now) -- it was begun, and nobody has used it
  redis.call('HSET', META, 'quarantine', int(quarantine))
end

-- A store is named by the first who uses it, not by who only begins it.
if not identity and IDENTITY ~= '' then
  identity = IDENTITY
  redis.call('HSET', META, 'identity', identity)
end

if EXPECTED ~= '' and EXPECTED ~= generation then
  return {'generation'}
end

-- All that a script changes is of one version.
local raised = false
local function raise()
  if not raised then
    raised = true
    version = redis.call('HINCRBY', META, 'version', 1)
    publish()
  end
end

-- An incarnation registers, its session ends, or is released.
local function changed(inc)
  raise()
  redis.call('ZADD', MEMBERS, int(version), inc)
end

-- A session that was seen to be over stays over, whatever the clock does.
for _, inc in ipairs(redis.call('ZRANGEBYSCORE', SESSIONS, 0, int(now))) do
  redis.call('ZADD', GONE, int(now), inc)
  redis.call('ZREM', SESSIONS, inc)
  redis.call('HDEL', DETAILS, inc)
  changed(inc)
end

local function live(inc)
  return inc ~= '' and redis.call('ZSCORE', SESSIONS, inc) and true or false
end

local function extend(inc, ttl)
  redis.call('ZADD', SESSIONS, int(now + ttl), inc)
  beat = beat + 1
  redis.call('HSET', META, 'clock', int(now), 'beat', int(beat))
  redis.call('HSET', STAMPS, inc, int(beat))
end

-- A reply that shows the store now, and what follows.
local function shows(...)
  return {'ok', generation, int(math.max(0, quarantine - now)), int(version), int(beat), int(now), ...}
end

local argument = FIRST - 1
local function take()
  argument = argument + 1
  return ARGV[argument]
end
