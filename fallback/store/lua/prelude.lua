local FRESH, TTL, CHANNEL, PUBLISH, NEW, IDENTITY, SETTINGS = unpack(ARGV, 4, 10)
local FIRST = 11 -- of the script's own arguments
local BATCH = 1000 -- arguments of one command
local HOUR = 3600 * 1000 -- how long tombstones are kept, ms

local seconds = math.floor(now / 1000)
local rest = redis.call('HMGET', META, 'floor', 'identity', 'settings', 'ttl')
local floor = tonumber(rest[1] or 0)
local identity = rest[2]
local settings = rest[3] or SETTINGS
local length = tonumber(rest[4] or TTL) -- of a quarantine

local function join(list)
  local out = {}
  for i, s in ipairs(list) do
    out[i] = #s .. ':' .. s .. ','
  end
  return table.concat(out)
end

-- Calls a command with many arguments, few at a time, which come in pairs.
local function write(command, key, args)
  for from = 1, #args, BATCH do
    redis.call(command, key, unpack(args, from, math.min(from + BATCH - 1, #args)))
  end
end

-- Returns the values of a hash's fields, false for one that is not there.
local function read(hash, fields)
  local values = {}
  for from = 1, #fields, BATCH do
    local some = redis.call('HMGET', hash, unpack(fields, from, math.min(from + BATCH - 1, #fields)))
    for i, value in ipairs(some) do
      values[from + i - 1] = value
    end
  end
  return values
end

-- The hint says what it is about, for those who know that already, and what has changed, if that is short.
-- One that gets lost is made good by polling.
local function publish(...)
  redis.pcall(PUBLISH, CHANNEL, join({int(version), generation, ...}))
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
    'generation', generation, 'server', server, 'life', (life or '') .. server, 'version', int(version),
    'floor', int(floor), 'quarantine', int(quarantine), 'clock', NOW)
  redis.call('DEL', LOCKS, WRITTEN, WRITES, CHANGES, SESSIONS, DETAILS, STAMPS, MEMBERS, GONE)
  local scores = {}
  for i, p in ipairs(redis.call('HKEYS', PARTITIONS)) do
    scores[2 * i - 1], scores[2 * i] = int(version), p
  end
  write('ZADD', CHANGES, scores)
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

if not identity and IDENTITY == 'any' then
  return {'empty'}
end
if over then
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
local function raise(silently)
  if not raised then
    raised = true
    version = redis.call('HINCRBY', META, 'version', 1)
    if not silently then
      publish()
    end
  end
end

-- An incarnation registers, its session ends, or is released.
local function changed(inc)
  raise()
  redis.call('ZADD', MEMBERS, int(version), inc)
end

-- A session that was seen to be over stays over, whatever the clock does.
for _, inc in ipairs(redis.call('ZRANGEBYSCORE', SESSIONS, 0, NOW)) do
  redis.call('ZADD', GONE, NOW, inc)
  redis.call('ZREM', SESSIONS, inc)
  redis.call('HDEL', DETAILS, inc)
  changed(inc)
end

local argument = FIRST - 1
local function take()
  argument = argument + 1
  return ARGV[argument]
end

local function split(s)
  local list, at = {}, 1
  while at <= #s do
    local colon = string.find(s, ':', at, true)
    local last = colon + tonumber(string.sub(s, at, colon - 1))
    list[#list + 1] = string.sub(s, colon + 1, last)
    at = last + 2
  end
  return list
end

-- Whether the caller's settings are others than those of the sessions that live,
-- or may live on without the store's knowing. The number of partitions stays:
-- records and tokens go by it.
local function differs()
  if SETTINGS == settings then
    return false
  end
  local partitions = 'partitions=%d+ '
  return quarantine > now or redis.call('ZCARD', SESSIONS) > 1 or string.match(SETTINGS, partitions) ~= string.match(settings, partitions)
end

-- Removes tombstones that are old.
local function forget()
  for _, tombstones in ipairs({RELEASED, GONE}) do
    for _, inc in ipairs(redis.call('ZRANGEBYSCORE', tombstones, 0, int(now - HOUR))) do
      redis.call('ZREM', tombstones, inc)
      redis.call('ZREM', MEMBERS, inc)
      redis.call('HDEL', STAMPS, inc)
    end
  end
end

local function released(inc)
  return inc ~= '' and redis.call('ZSCORE', RELEASED, inc) and true or false
end

-- Partitions are read once and written together by save.
local loaded, dirty = {}, {}

local function decode(value)
  local fields = split(value or '')
  local state = {epoch = tonumber(fields[1] or 0), owner = fields[2] or '', moved = tonumber(fields[3] or 0), residue = {}, value = value}
  for i = 4, #fields do
    state.residue[i - 3] = fields[i]
  end
  return state
end

local function touch(p)
  loaded[p].value = nil
  if not loaded[p].dirty then
    loaded[p].dirty = true
    dirty[#dirty + 1] = p
  end
end

local function own(p, epoch, owner)
  loaded[p].epoch = epoch
  loaded[p].owner = owner
  touch(p)
end

-- Residue is a flat list: key, holder, token, key, ...
local function find(state, key)
  for i = 1, #state.residue, 3 do
    if state.residue[i] == key then
      return i
    end
  end
end

local function put(p, key, holder, token)
  local residue = loaded[p].residue
  local i = find(loaded[p], key) or #residue + 1
  residue[i], residue[i + 1], residue[i + 2] = key, holder, token
  touch(p)
end

local function encode(state)
  if not state.value then
    local fields = {int(state.epoch), state.owner, int(state.moved)}
    for i, s in ipairs(state.residue) do
      fields[i + 3] = s
    end
    state.value = join(fields)
  end
  return state.value
end

-- Takes the locks of a partition's latest move in place of those of the one before.
local function put_locks(p, locks)
  if locks == '' then
    redis.call('HDEL', LOCKS, p)
  else
    redis.call('HSET', LOCKS, p, locks)
  end
end

-- Members of WRITTEN begin with their partition, and the length of an id and the id.
local function write_lock(p, id, text)
  local lock = p .. ':' .. #id .. ':' .. id
  redis.call('ZREMRANGEBYLEX', WRITTEN, '[' .. lock .. ':', '(' .. lock .. ';')
  if text ~= '' then
    redis.call('ZADD', WRITTEN, 0, lock .. ':' .. text)
  end
end

local function written_locks(p)
  local locks = {}
  for _, member in ipairs(redis.call('ZRANGEBYLEX', WRITTEN, '[' .. p .. ':', '(' .. p .. ';')) do
    local from, to = string.find(member, '%d+:', #p + 2)
    local length = tonumber(string.sub(member, from, to - 1))
    locks[#locks + 1] = string.sub(member, to + 1, to + length)
    locks[#locks + 1] = string.sub(member, to + length + 2)
  end
  return locks
end

-- Partitions that are changed, with their values, if they are few and have no locks, of which only
-- their owner is told.
local function told()
  local out = {}
  for i, p in ipairs(dirty) do
    out[2 * i - 1], out[2 * i] = p, encode(loaded[p])
    if i > 16 or #out[2 * i] > 1000 or redis.call('HGET', LOCKS, p) or #written_locks(p) > 0 then
      return
    end
  end
  return unpack(out)
end

-- Comes last in a script: the hint then tells of all that is of this version, and of what is written.
local function save()
  if #dirty == 0 then
    return
  end
  local alone = not raised
  raise(true)
  local values, scores = {}, {}
  for i, p in ipairs(dirty) do
    values[2 * i - 1], values[2 * i] = p, encode(loaded[p])
    scores[2 * i - 1], scores[2 * i] = int(version), p
  end
  write('HSET', PARTITIONS, values)
  write('ZADD', CHANGES, scores)
  if alone then
    publish(told())
  end
end

-- What an incarnation is told of partitions: a partition, its value, and its locks that
-- a move has written, and those that are kept, each. Locks are told to the owner alone.
local function tell(inc, partitions, values)
  local out, owned, at = {}, {}, {}
  for i, p in ipairs(partitions) do
    out[4 * i - 3], out[4 * i - 2], out[4 * i - 1], out[4 * i] = p, values[i], '', {}
    local from, to = string.find(values[i], '^%d+:%d+,%d+:')
    if inc ~= '' and from and string.sub(values[i], to + 1, to + #inc + 1) == inc .. ',' then
      owned[#owned + 1] = p
      at[#owned] = 4 * i
    end
  end
  local written = redis.call('ZCARD', WRITTEN) > 1
  for i, locks in ipairs(read(LOCKS, owned)) do
    out[at[i] - 1] = locks or ''
    if written then
      out[at[i]] = written_locks(owned[i])
    end
  end
  return out
end

local function states(inc, partitions)
  local values = {}
  for i, p in ipairs(partitions) do
    values[i] = encode(loaded[p])
  end
  return tell(inc, partitions, values)
end

-- Takes a number of partitions and that many partitions, and loads them.
local function take_partitions()
  local partitions = {}
  for i = 1, tonumber(take()) do
    partitions[i] = take()
  end
  for i, value in ipairs(read(PARTITIONS, partitions)) do
    loaded[partitions[i]] = decode(value)
  end
  return partitions
end

-- Takes a number of residues, and calls f with key, holder and token of each.
local function take_residue(f)
  for _ = 1, tonumber(take()) do
    f(take(), take(), take())
  end
end

