-- ARGV: incarnation, ttl
local inc, ttl = take(), tonumber(take())
if not live(inc) then
  return {'gone'}
end
redis.call('ZADD', SESSIONS, int(now + ttl), inc)
redis.call('HINCRBY', RENEWALS, inc, 1)
return {'ok'}
