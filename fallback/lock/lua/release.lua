-- Gives locks back and leaves their queues. It frees what the owner holds, in
-- either mode, and nothing else, so it may come late and more than once.
--
-- KEYS 1 tombstone of the owner; then for each lock: lock, fence, waiting
--      room, and the queue or bell
-- ARGV 1 owner, 2 ms for which the tombstone makes an acquire of the owner
--        that is still on its way fail, 0 for none, 3 PUBLISH or SPUBLISH,
--        4 whether the owner may be waiting, 5 1 if there are queues
-- Returns {locks freed, clients that were told}

local owner, publish, queues = ARGV[1], ARGV[3], ARGV[5] == '1'
local writer, reader = 'w' .. owner:sub(2), 'r' .. owner:sub(2)
if ARGV[2] ~= '0' then redis.call('SET', KEYS[1], '1', 'PX', ARGV[2]) end

-- free frees the lock if the owner holds it, and says whether it did and
-- whether others may take it now.
local function free(lock)
  local holder = redis.pcall('GET', lock)
  if holder == writer then
    redis.call('DEL', lock)
    return true, true
  end
  if type(holder) ~= 'table' or redis.pcall('ZREM', lock, reader) ~= 1 then return false, false end
  local last = redis.call('ZRANGE', lock, -1, -1, 'WITHSCORES')
  if not last[2] then return true, true end
  redis.call('PEXPIREAT', lock, last[2])
  return true, false
end

local freed, told = 0, 0
for i = 2, #KEYS, 4 do
  local held, open = free(KEYS[i])
  if held then freed = freed + 1 end
  if ARGV[4] == '1' then
    if redis.call('ZREM', KEYS[i + 2], owner) == 1 then open = true end
    if queues then redis.call('ZREM', KEYS[i + 3], owner) end
  end
  if open then
    local next = ''
    if queues then
      next = redis.call('ZRANGE', KEYS[i + 3], 0, 0)[1] or ''
      if next:sub(1, 1) ~= 'w' then next = '' end
    end
    told = math.max(told, redis.call(publish, KEYS[i], next))
  end
end
return {freed, told}
