-- ARGV: incarnation, the writes' partitions, then of each write: epoch and number, how
-- many locks, and id and text of each lock.
local inc = take()
if not live(inc) then
  return {'gone'}
end
local partitions, wrote = take_partitions(), {}
for i, p in ipairs(partitions) do
  local epoch, number, state = take(), take(), loaded[p]
  local last = split(redis.call('HGET', WRITES, p) or '1:0,1:0,')
  local later = last[1] ~= epoch or tonumber(last[2]) < tonumber(number)
  local apply = state.owner == inc and state.epoch == tonumber(epoch) and later
  for _ = 1, tonumber(take()) do
    local id, text = take(), take()
    if apply then
      write_lock(p, id, text)
    end
  end
  if apply then
    last = {epoch, number}
    redis.call('HSET', WRITES, p, join(last))
  end
  wrote[2 * i - 1], wrote[2 * i] = last[1], last[2]
end
return {'ok', wrote}
