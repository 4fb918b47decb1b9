-- Gives back a lock held exclusively by an owner who never waited: the last
-- call of most, for which release.lua does more than is needed.
--
-- KEYS 1 lock, 2 bell: there if anyone may be waiting
-- ARGV 1 owner, 2 PUBLISH or SPUBLISH
-- Returns as release.lua does.

if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return {0, 0} end
if redis.call('DEL', KEYS[1], KEYS[2]) == 1 then return {1, 0} end
return {1, redis.call(ARGV[2], KEYS[1], '')}
