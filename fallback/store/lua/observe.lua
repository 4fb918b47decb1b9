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

local partitions = {}
if since < version then
  local changed = redis.call('ZRANGEBYSCORE', CHANGES, '(' .. int(since), '+inf')
  for from = 1, #changed, BATCH do
    local to = math.min(from + BATCH - 1, #changed)
    local values = redis.call('HMGET', PARTITIONS, unpack(changed, from, to))
    for i = from, to do
      partitions[#partitions + 1] = changed[i]
      partitions[#partitions + 1] = values[i - from + 1]
    end
  end
end

return {'ok', generation, int(math.max(0, quarantine - now)), int(version), int(now), sessions,
  redis.call('ZRANGEBYSCORE', RELEASED, '(' .. int(math.max(0, now - HOUR)), '+inf'), partitions}
