-- ARGV: incarnation that asks, version after which to report changes
local inc, since = take(), tonumber(take())
if since < floor then
  since = 0
end

local sessions = {}
for _, inc in ipairs(redis.call('ZRANGEBYSCORE', SESSIONS, 0, '+inf')) do
  sessions[#sessions + 1] = inc
  sessions[#sessions + 1] = redis.call('HGET', RENEWALS, inc)
  sessions[#sessions + 1] = redis.call('HGET', DETAILS, inc)
end

local changed, values = {}, {}
if since < version then
  changed = redis.call('ZRANGEBYSCORE', CHANGES, '(' .. int(since), '+inf')
  for from = 1, #changed, BATCH do
    local to = math.min(from + BATCH - 1, #changed)
    for i, value in ipairs(redis.call('HMGET', PARTITIONS, unpack(changed, from, to))) do
      values[from + i - 1] = value
    end
  end
end

return {'ok', generation, int(math.max(0, quarantine - now)), int(version), int(now), sessions,
  redis.call('ZRANGEBYSCORE', RELEASED, '(' .. int(math.max(0, now - HOUR)), '+inf'), tell(inc, changed, values)}
