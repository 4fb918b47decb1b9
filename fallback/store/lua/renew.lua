-- ARGV: those of guard.lua, incarnation, ttl. It is the most frequent script, and comes behind guard.lua alone.
local INC, TTL = unpack(ARGV, 4, 5)
if over or #redis.call('ZRANGEBYSCORE', SESSIONS, 0, NOW) > 0 then
  return {'unsettled'}
end
if EXPECTED ~= generation then
  return {'generation'}
end
if INC == '' or redis.call('ZADD', SESSIONS, 'XX', 'CH', int(now + TTL), INC) == 0 and not live(INC) then
  return {'gone'}
end
stamp(INC)
return shows()
