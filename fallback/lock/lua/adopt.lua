-- Gives locks from one owner to another, all or none, with nobody else in
-- between. The first owner can take and renew nothing after that.
--
-- KEYS 1 tombstone of the new owner, 2 tombstone of the old one, then the locks
-- ARGV 1 old owner, 2 new owner, 3 TTL in ms, 4 ms for which the old owner's
--        tombstone stays
-- Returns 1 when done (also when it was done before), 0 when a lock is gone, -1
--      when one is another's.

local old, new, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3])
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end

-- held says whether an owner has a lock in either mode.
local function held(lock, owner)
  local holder = redis.pcall('GET', lock)
  if type(holder) ~= 'table' then return holder == owner end
  return type(redis.pcall('ZSCORE', lock, owner)) == 'string'
end

for i = 3, #KEYS do
  if redis.call('EXISTS', KEYS[i]) == 0 then return 0 end
  if not held(KEYS[i], old) and not held(KEYS[i], new) then return -1 end
end
for i = 3, #KEYS do
  if new:sub(1, 1) == 'r' then
    read(KEYS[i], new, ttl)
    redis.call('ZREM', KEYS[i], old)
  else
    redis.call('SET', KEYS[i], new, 'PX', int(math.max(ttl, redis.call('PTTL', KEYS[i]))))
  end
end
redis.call('SET', KEYS[2], '1', 'PX', ARGV[4])
return 1
