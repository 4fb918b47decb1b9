-- ARGV: incarnation, ttl, name, addr, gossip, the holdings' partitions, then of
-- each holding: epoch, residue.
redis.call('ZREMRANGEBYSCORE', RELEASED, 0, int(now - HOUR))
redis.call('ZREMRANGEBYSCORE', GONE, 0, int(now - HOUR))

local inc, ttl = take(), tonumber(take())
local name, addr, gossip = take(), take(), take()
if inc == '' or released(inc) or redis.call('ZSCORE', GONE, inc) then
  return {'gone'}
end
local renewals = tonumber(redis.call('HGET', RENEWALS, inc) or 0)
extend(inc, ttl)
redis.call('HSET', DETAILS, inc, join({name, addr, gossip}))
redis.call('HSET', RENEWALS, inc, int(math.max(renewals + 1, now)))

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
if #dirty == 0 then
  publish()
end
return {'ok', states(partitions)}
