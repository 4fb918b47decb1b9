-- ARGV: incarnation, the changes' partitions, then of each change: op, epoch
-- and owner that it is from, to, floor, residue, locks, and the epoch at which
-- the caller served it.
local CLAIM, MOVE, ADVANCE = '1', '2', '3'

local inc = take()
if not live(inc) then
  return {'gone'}
end

local function allowed(op, from, to)
  if op == CLAIM then
    if from == inc or released(from) then
      return true
    end
    return quarantine <= now and (from == '' or not live(from))
  end
  return from == inc and (op == ADVANCE or (op == MOVE and live(to)))
end

local partitions = take_partitions()
for _, p in ipairs(partitions) do
  local op, epoch, owner = take(), tonumber(take()), take()
  local to, lowest, state = take(), tonumber(take()), loaded[p]
  local apply = state.epoch == epoch and state.owner == owner and allowed(op, owner, to)
  if apply then
    own(p, math.max(epoch + 1, lowest, seconds), op == MOVE and to or inc)
  end
  take_residue(function(key, holder, token)
    if apply and op == MOVE then
      put(p, key, holder, token)
    end
  end)
  local locks, served = take(), tonumber(take())
  if apply and op == MOVE and served >= state.moved then
    state.moved = state.epoch
    put_locks(p, locks)
  elseif apply and op ~= ADVANCE and owner == inc and served < state.moved and state.moved == epoch then
    state.moved = state.epoch -- the locks of the latest move, which nobody has served since
  end
end
save()
return {'ok', states(inc, partitions)}
