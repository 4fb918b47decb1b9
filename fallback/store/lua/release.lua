-- ARGV: incarnation
local inc = take()
if inc == '' then
  return {'ok'}
end
local name = split(redis.call('HGET', DETAILS, inc) or '')[1]
if name and name ~= '' and split(redis.call('HGET', STARTS, name) or '')[1] == inc then
  redis.call('HDEL', STARTS, name)
end
local first = redis.call('ZADD', RELEASED, int(now), inc) == 1
redis.call('ZREM', SESSIONS, inc)
redis.call('HDEL', DETAILS, inc)
redis.call('HDEL', STAMPS, inc)
redis.call('ZREM', GONE, inc)
if first then
  changed(inc)
end
return {'ok'}
