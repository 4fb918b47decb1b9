-- ARGV: the placements that the caller knows, and those that replace them.
local from, to = take(), take()
local placements = redis.call('HGET', META, 'placements') or ''
if placements == from and from ~= to then
  raise()
  redis.call('HSET', META, 'placements', to, 'placed', int(version))
  placements = to
end
return {'ok', placements}
