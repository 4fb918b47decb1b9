-- ARGV: incarnation, ttl
local inc, ttl = take(), tonumber(take())
if not live(inc) then
  return {'gone'}
end
extend(inc, ttl)
redis.call('HINCRBY', RENEWALS, inc, 1)
return {'ok'}
