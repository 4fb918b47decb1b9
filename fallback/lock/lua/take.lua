-- Takes a free lock exclusively: the first try of most callers, for which
-- acquire.lua does more than is needed.
--
-- KEYS 1 tombstone of the owner, 2 lock, 3 fence
-- ARGV 1 owner, 2 TTL in ms, 3 fencing tokens to reserve beyond the first
-- Returns as acquire.lua does.

if redis.call('EXISTS', KEYS[1]) == 1 then return {-1, 0} end
if not redis.call('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return {0, redis.call('PTTL', KEYS[2])}
end
local size = 1 + tonumber(ARGV[3])
local last = redis.call('INCRBY', KEYS[3], size)
if last > size and last % (32 * size) >= size then return {1, last - size + 1} end

-- A new counter starts from the clock in microseconds, so that tokens go on
-- rising when it is lost. One in use is kept for a day from time to time.
if last == size then
  local clock = redis.call('TIME')
  last = clock[1] * 1000000 + clock[2] + size
  redis.call('SET', KEYS[3], string.format('%.0f', last))
end
redis.call('EXPIRE', KEYS[3], 86400)
return {1, last - size + 1}
