-- Frees a lock, whoever holds it, and notes that for its owners.
--
-- KEYS 1 lock, 2 owners from whom it was taken by force, 3 bell, 4 queue
-- ARGV 1 by whom and why, 2 PUBLISH or SPUBLISH, 3 id of the call, which may be
--        repeated
-- Returns the number of owners that it was taken from, 1 for what is no lock of
--      this package, or 0 when it was free.

local done = redis.call('HGET', KEYS[2], ARGV[3])
if done then return tonumber(done) end
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local holder, owners = redis.pcall('GET', KEYS[1]), {}
if type(holder) ~= 'table' then
  owners = {holder}
elseif redis.call('TYPE', KEYS[1])['ok'] == 'zset' then
  owners = redis.call('ZRANGE', KEYS[1], 0, -1)
end
if redis.call('HLEN', KEYS[2]) > 1000 then redis.call('DEL', KEYS[2]) end
for _, owner in ipairs(owners) do redis.call('HSET', KEYS[2], owner, ARGV[1]) end
redis.call('HSET', KEYS[2], ARGV[3], math.max(#owners, 1))
redis.call('EXPIRE', KEYS[2], 86400)
redis.call('DEL', KEYS[1], KEYS[3])
local next = redis.call('ZRANGE', KEYS[4], 0, 0)[1] or ''
if next:sub(1, 1) ~= 'w' then next = '' end
redis.call(ARGV[2], KEYS[1], next)
return math.max(#owners, 1)
