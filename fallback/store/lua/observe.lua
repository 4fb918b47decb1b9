-- ARGV: incarnation that asks, versions after which to report changes of partitions, and of
-- sessions, suspects
local inc, since, known = take(), tonumber(take()), tonumber(take())
if since < floor then
  since = 0
end
if known == 0 then
  forget()
end

-- Of each incarnation: the details of its session, if it has one; its stamp, unless it is released.
local members = {}
local incarnations = redis.call('ZRANGEBYSCORE', MEMBERS, known == 0 and 0 or '(' .. int(known), '+inf')
for from = 1, #incarnations, BATCH do
  local to = math.min(from + BATCH - 1, #incarnations)
  local details = redis.call('HMGET', DETAILS, unpack(incarnations, from, to))
  local stamps = redis.call('HMGET', STAMPS, unpack(incarnations, from, to))
  for i = from, to do
    members[3 * i - 2], members[3 * i - 1], members[3 * i] = incarnations[i], details[i - from + 1] or '', stamps[i - from + 1] or ''
  end
end

local stamps = {}
for i = argument + 1, #ARGV do
  if live(ARGV[i]) then
    stamps[#stamps + 1] = ARGV[i]
    stamps[#stamps + 1] = redis.call('HGET', STAMPS, ARGV[i])
  end
end

local told, values = {}, {}
if since < version then
  told = redis.call('ZRANGEBYSCORE', CHANGES, '(' .. int(since), '+inf')
  for from = 1, #told, BATCH do
    local to = math.min(from + BATCH - 1, #told)
    for i, value in ipairs(redis.call('HMGET', PARTITIONS, unpack(told, from, to))) do
      values[from + i - 1] = value
    end
  end
end

local notes = redis.call('HMGET', META, 'placements at', 'placements', 'suspects at', 'suspects')
local function changed(i)
  return tonumber(notes[i] or 0) > known and {notes[i + 1]} or {}
end

return shows(members, stamps, changed(1), changed(3), tell(inc, told, values))
