-- Turns a lock held exclusively into one held for reading, with nobody else
-- in between.
--
-- KEYS 1 tombstone of the owner, 2 lock
-- ARGV 1 owner that writes, 2 owner that will read, 3 TTL in ms, 4 PUBLISH or
--      SPUBLISH
-- Returns 1 when done (also when it was done before), 0 when the lock is gone,
--      -1 when it is another's.

if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
local holder = redis.pcall('GET', KEYS[2])
if not holder then return 0 end
if type(holder) == 'table' then
  return type(redis.pcall('ZSCORE', KEYS[2], ARGV[2])) == 'string' and 1 or -1
end
if holder ~= ARGV[1] then return -1 end
redis.call('DEL', KEYS[2])
read(KEYS[2], ARGV[2], tonumber(ARGV[3]))
redis.call(ARGV[4], KEYS[2], '')
return 1
