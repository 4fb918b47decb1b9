-- ARGV: incarnation
local inc = take()
if inc == '' then
  return {'ok'}
end
redis.call('ZADD', RELEASED, int(now), inc)
redis.call('ZREM', SESSIONS, inc)
redis.call('HDEL', DETAILS, inc)
redis.call('HDEL', RENEWALS, inc)
publish()
return {'ok'}
