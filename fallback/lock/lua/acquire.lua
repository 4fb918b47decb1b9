-- Takes one or several locks exclusively, all or none.
--
-- KEYS 1 tombstone of the owner; then for each lock: lock, fence, waiting
--      room, bell
-- ARGV 1 owner, 2 TTL in ms, 3 fencing tokens to reserve beyond the first,
--      4 ms for which the caller waits, so that readers who come make way
--        and the holder rings the bell, or 0, 5 whether the owner may be in a waiting room
-- Returns {1, token}, {0, ms after which to try again at the latest}, or
--      {-1, 0} when the owner has given up: this call was overtaken.

local owner, ttl, reserve, stay = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
if redis.call('EXISTS', KEYS[1]) == 1 then return {-1, 0} end

local got, fences, mine, busy, left = {}, {}, 0, false, 0
for i = 2, #KEYS, 4 do
  local lock = KEYS[i]
  fences[#fences + 1] = KEYS[i + 1]
  if redis.call('SET', lock, owner, 'NX', 'PX', int(ttl)) then
    got[#got + 1] = lock
  else
    local holder = redis.pcall('GET', lock)
    if holder == owner then
      extend(lock, ttl)
      got[#got + 1] = lock
      mine = mine + 1
    else
      busy = true
      left = math.max(left, redis.call('PTTL', lock))
      if stay > 0 then redis.call('SET', KEYS[i + 3], '1', 'PX', int(stay)) end
      if stay > 0 and type(holder) == 'table' then
        redis.call('ZADD', KEYS[i + 2], int(now + stay), owner)
        redis.call('PEXPIRE', KEYS[i + 2], int(stay))
      end
    end
  end
end

if busy then
  for _, lock in ipairs(got) do redis.call('DEL', lock) end
  return {0, left}
end
if ARGV[5] == '1' then
  for i = 2, #KEYS, 4 do redis.call('ZREM', KEYS[i + 2], owner) end
end
if mine == #fences then
  local last = redis.call('GET', fences[1])
  if last then return {1, tonumber(last) - reserve} end
end
return {1, mint(fences, reserve)}
