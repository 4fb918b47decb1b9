-- ARGV: incarnation, then of each change: op, partition, from epoch, from
-- owner, to, floor, number of residues, and key, holder, token of each.
local CLAIM, MOVE, ADVANCE = '1', '2', '3'

local inc = take()
if not live(inc) then
  return {'gone'}
end

local function allowed(op, from, to)
  if op == CLAIM then
    if from == inc or (from ~= '' and released(from)) then
      return true
    end
    return quarantine <= now and (from == '' or not live(from))
  end
  return from == inc and (op == ADVANCE or (op == MOVE and live(to)))
end

local partitions = {}
while argument < #ARGV do
  local op, p = take(), take()
  local epoch, owner = tonumber(take()), take()
  local to, lowest, residues = take(), tonumber(take()), tonumber(take())
  local state = load(p)
  local apply = state.epoch == epoch and state.owner == owner and allowed(op, owner, to)
  if apply then
    own(p, math.max(epoch + 1, lowest, seconds), op == MOVE and to or inc)
  end
  for _ = 1, residues do
    local key, holder, token = take(), take(), take()
    if apply and op == MOVE then
      put(p, key, holder, token)
    end
  end
  partitions[#partitions + 1] = p
end
save()
return {'ok', states(partitions)}
