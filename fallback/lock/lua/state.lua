-- Says who has a lock.
--
-- KEYS 1 lock, 2 fence, 3 waiting room
-- ARGV 1 whether those in the waiting room are all who wait
-- Returns {an owner or '', 1 if it is held, readers, ms left or less than 0, fence or 0, waiters}

local kind = redis.call('TYPE', KEYS[1])['ok']
local held, owner, readers = 1, '', 0
if kind == 'none' then
  held = 0
elseif kind == 'string' then
  owner = redis.call('GET', KEYS[1])
elseif kind == 'zset' then
  local live = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. int(now), '+inf')
  readers = #live
  if readers == 0 then held = 0 else owner = live[1] end
end
local waiters = 0
if ARGV[1] == '1' then waiters = #redis.call('ZRANGEBYSCORE', KEYS[3], '(' .. int(now), '+inf') end
return {owner, held, readers, redis.call('PTTL', KEYS[1]), tonumber(redis.call('GET', KEYS[2]) or '') or 0, waiters}
