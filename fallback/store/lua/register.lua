-- ARGV: incarnation, ttl, name, addr, gossip, the holdings' partitions, then of
-- each holding: epoch, residue.
if differs() then
  return {'settings', settings}
end
if SETTINGS ~= settings then
  settings = SETTINGS
  length = math.max(length, tonumber(TTL))
  begin()
  redis.call('HSET', META, 'ttl', TTL)
  return {'generation'}
end

forget()

local inc, ttl = take(), tonumber(take())
local name, addr, gossip = take(), take(), take()
if inc == '' or released(inc) or redis.call('ZSCORE', GONE, inc) then
  return {'gone'}
end

-- A name whose incarnations die one after the other is to join the ring later
-- each time, from the third on. It begins anew when one has left in order or
-- lived for long.
local function start(name)
  if name == '' then
    return now
  end
  local starts = redis.call('HGETALL', STARTS)
  for i = 1, #starts, 2 do
    if starts[i] ~= '' and tonumber(split(starts[i + 1])[3]) <= now - 30 * TTL then
      redis.call('HDEL', STARTS, starts[i])
    end
  end
  local last = split(redis.call('HGET', STARTS, name) or '')
  local deaths, at = 0, now
  if last[1] == inc then
    deaths, at = tonumber(last[2]), tonumber(last[3])
  elseif last[1] then
    deaths = tonumber(last[2]) + 1
  end
  redis.call('HSET', STARTS, name, join({inc, int(deaths), int(at)}))
  if deaths < 2 then
    return at
  end
  return at + math.min(2 ^ (deaths - 2), 10) * TTL
end

redis.call('ZADD', SESSIONS, int(now + ttl), inc)
stamp(inc)
redis.call('HSET', DETAILS, inc, join({name, addr, gossip, int(start(name))}))
changed(inc)

-- A re-asserted residue does not replace the entry of a later execution.
-- Tokens are compared as decimals: they outgrow a double.
local function later(a, b)
  if #a ~= #b then
    return #a > #b
  end
  return a > b
end

local partitions = take_partitions()
for _, p in ipairs(partitions) do
  local epoch, state = tonumber(take()), loaded[p]
  if epoch > 0 and (state.epoch <= epoch or state.owner == inc) then
    own(p, math.max(state.epoch + 1, epoch + 1, seconds), inc)
  end
  take_residue(function(key, holder, token)
    local i = find(state, key)
    if not i or not later(state.residue[i + 2], token) then
      put(p, key, holder, token)
    end
  end)
end
save()
return {'ok', states(inc, partitions)}
