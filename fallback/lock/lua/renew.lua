-- Gives an owner more time on all its locks, or on none. A downgrade whose
-- answer was lost may have made a writer's lock a reader's.
--
-- KEYS for each lock: lock, fence
-- ARGV 1 owner, 2 TTL in ms, 3 lowest value to leave in the fences, or 0
-- Returns 1 when extended, 0 when a lock is gone, or -1 when one is another's.

local owner, ttl, floor = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local reads, reader = false, 'r' .. owner:sub(2)

for i = 1, #KEYS, 2 do
  local holder = redis.pcall('GET', KEYS[i])
  if not holder then return 0 end
  if type(holder) == 'table' then
    reads = true
    local score = redis.pcall('ZSCORE', KEYS[i], reader)
    if not score or type(score) == 'table' then return -1 end
  elseif holder ~= owner then
    return -1
  end
end
for i = 1, #KEYS, 2 do
  if reads then read(KEYS[i], reader, ttl) else extend(KEYS[i], ttl) end
  if floor > 0 and tonumber(redis.call('GET', KEYS[i + 1]) or 0) < floor then
    redis.call('SET', KEYS[i + 1], int(floor), 'EX', 86400)
  end
end
return 1
