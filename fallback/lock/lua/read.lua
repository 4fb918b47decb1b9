-- Takes a lock for reading. Readers make way for writers that wait.
--
-- KEYS 1 tombstone of the owner, 2 lock, 3 fence, 4 waiting room, 5 bell
-- ARGV 1 owner, 2 TTL in ms, 3 ms for which the caller waits, or 0
-- Returns as acquire.lua does.

local owner, ttl = ARGV[1], tonumber(ARGV[2])
if redis.call('EXISTS', KEYS[1]) == 1 then return {-1, 0} end

local kind = redis.call('TYPE', KEYS[2])['ok']
if kind ~= 'zset' and kind ~= 'none' then
  if ARGV[3] ~= '0' then redis.call('SET', KEYS[5], '1', 'PX', ARGV[3]) end
  return {0, redis.call('PTTL', KEYS[2])}
end
if kind == 'zset' then redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', int(now)) end

if not redis.call('ZSCORE', KEYS[2], owner) then
  redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', int(now))
  local writer = redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')
  if writer[2] then return {0, math.max(1, tonumber(writer[2]) - now)} end
end
read(KEYS[2], owner, ttl)
return {1, mint({KEYS[3]}, 0)}
