-- ARGV: incarnation, ttl
local inc, ttl = take(), tonumber(take())
if not live(inc) then
  return {'gone'}
end
extend(inc, ttl)
return shows()
