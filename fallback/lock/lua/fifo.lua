-- Takes one or several locks in order of arrival, all or none: exclusively if
-- the owner begins with w, else for reading.
--
-- KEYS 1 tombstone of the owner; then for each lock: lock, fence, waiting
--      room (waiters by the ms at which they count as dead), queue (waiters
--      by their place)
-- ARGV 1 owner, 2 TTL in ms, 3 fencing tokens to reserve beyond the first,
--      4 ms after which a waiter that does not call again is dead, 0 if the
--        caller does not wait, 5 PUBLISH or SPUBLISH
-- Returns as acquire.lua does.

local owner, ttl, reserve, stay = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
if redis.call('EXISTS', KEYS[1]) == 1 then return {-1, 0} end
local writes = owner:sub(1, 1) == 'w'

-- forget_dead removes the waiters that have not called again in time.
local function forget_dead(lock, room, queue)
  local dead = redis.call('ZRANGEBYSCORE', room, '-inf', int(now))
  for _, waiter in ipairs(dead) do redis.call('ZREM', queue, waiter) end
  if #dead > 0 then
    redis.call('ZREMRANGEBYSCORE', room, '-inf', int(now))
    redis.call(ARGV[5], lock, '')
  end
end

-- ahead returns the waiter for whom the owner must wait, if any.
local function ahead(queue)
  for _, waiter in ipairs(redis.call('ZRANGE', queue, 0, writes and 0 or -1)) do
    if waiter == owner then return nil end
    if writes or waiter:sub(1, 1) == 'w' then return waiter end
  end
end

local fences, mine, busy, left, place = {}, 0, false, 0, 0
for i = 2, #KEYS, 4 do
  local lock, room, queue = KEYS[i], KEYS[i + 2], KEYS[i + 3]
  fences[#fences + 1] = KEYS[i + 1]
  forget_dead(lock, room, queue)
  local holder = redis.pcall('GET', lock)
  local readers = type(holder) == 'table' and redis.call('TYPE', lock)['ok'] == 'zset'
  if readers then
    redis.call('ZREMRANGEBYSCORE', lock, '-inf', int(now))
    if redis.call('EXISTS', lock) == 0 then holder, readers = false, false end
  end
  if holder == owner or (readers and redis.call('ZSCORE', lock, owner)) then
    mine = mine + 1
  else
    local first = ahead(queue)
    if holder and not (readers and not writes) then
      busy = true
      left = math.max(left, redis.call('PTTL', lock))
    elseif first then
      busy = true
      left = math.max(left, tonumber(redis.call('ZSCORE', room, first) or now) - now, 1)
    end
  end
  local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
  if last[2] then place = math.max(place, tonumber(last[2])) end
end

if busy then
  for i = 2, stay > 0 and #KEYS or 0, 4 do
    local room, queue = KEYS[i + 2], KEYS[i + 3]
    redis.call('ZADD', queue, 'NX', int(place + 1), owner)
    redis.call('ZADD', room, int(now + stay), owner)
    redis.call('PEXPIRE', queue, int(2 * stay))
    redis.call('PEXPIRE', room, int(2 * stay))
  end
  return {0, left}
end

for i = 2, #KEYS, 4 do
  redis.call('ZREM', KEYS[i + 2], owner)
  redis.call('ZREM', KEYS[i + 3], owner)
  if writes then
    if not redis.call('SET', KEYS[i], owner, 'NX', 'PX', int(ttl)) then extend(KEYS[i], ttl) end
  else
    read(KEYS[i], owner, ttl)
  end
end
if writes and mine == #fences then
  local last = redis.call('GET', fences[1])
  if last then return {1, tonumber(last) - reserve} end
end
return {1, mint(fences, reserve)}
