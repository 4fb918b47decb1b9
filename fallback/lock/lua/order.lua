-- Compares what the lockers of one prefix say of the order in which they grant
-- locks. What was said is forgotten when nobody has said it for a while.
--
-- KEYS 1 what was said
-- ARGV 1 what this locker says, 2 ms for which it counts
-- Returns 1 if it is the same, or the first one, else 0.

local said = redis.call('GET', KEYS[1])
if said and said ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
