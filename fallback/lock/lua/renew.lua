-- Gives an owner more time on all its locks, or on none.
--
-- KEYS for each lock: lock, fence
-- ARGV 1 owner, 2 TTL in ms, 3 lowest value to leave in the fences, or 0
-- Returns 1 when extended, 0 when a lock is gone, or -1 when one is another's.

local owner, ttl, floor = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local reads = owner:sub(1, 1) == 'r'

for i = 1, #KEYS, 2 do
  local holder = redis.pcall('GET', KEYS[i])
  if not holder then return 0 end
  if type(holder) == 'table' then
    if not reads then return -1 end
    local score = redis.pcall('ZSCORE', KEYS[i], owner)
    if not score or type(score) == 'table' then return -1 end
  elseif holder ~= owner then
    return -1
  end
end
for i = 1, #KEYS, 2 do
  if reads then read(KEYS[i], owner, ttl) else extend(KEYS[i], ttl) end
  if floor > 0 and tonumber(redis.call('GET', KEYS[i + 1]) or 0) < floor then
    redis.call('SET', KEYS[i + 1], int(floor), 'EX', 86400)
  end
end
return 1
