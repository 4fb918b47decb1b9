-- ARGV: incarnation that asks, versions after which to report changes of partitions, and of
-- sessions, suspects
local inc, since, known = take(), tonumber(take()), tonumber(take())
if since < floor then
  since = 0
end
if known == 0 then
  forget()
end

-- Of each incarnation: the details of its session, if it has one; its stamp, 0 if it is released.
local members = {}
local incarnations = redis.call('ZRANGEBYSCORE', MEMBERS, known == 0 and 0 or '(' .. int(known), '+inf')
local details, beats = read(DETAILS, incarnations), read(STAMPS, incarnations)
for i, incarnation in ipairs(incarnations) do
  members[3 * i - 2], members[3 * i - 1], members[3 * i] = incarnation, details[i] or '', beats[i] or 0
end

local stamps = {}
for i = argument + 1, #ARGV do
  if live(ARGV[i]) then
    stamps[#stamps + 1] = ARGV[i]
    stamps[#stamps + 1] = redis.call('HGET', STAMPS, ARGV[i])
  end
end

local told = {}
if since < version then
  told = redis.call('ZRANGEBYSCORE', CHANGES, '(' .. int(since), '+inf')
end

local notes = redis.call('HMGET', META, 'placements at', 'placements', 'suspects at', 'suspects')
local function changed(i)
  return tonumber(notes[i] or 0) > known and {notes[i + 1]} or {}
end

return shows(members, stamps, changed(1), changed(3), tell(inc, told, read(PARTITIONS, told)))
