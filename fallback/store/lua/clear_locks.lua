-- ARGV: the partitions, and of each the epoch of the move whose locks are to go.
for _, p in ipairs(take_partitions()) do
  if loaded[p].moved == tonumber(take()) then
    redis.call('HDEL', LOCKS, p)
  end
end
return {'ok'}
