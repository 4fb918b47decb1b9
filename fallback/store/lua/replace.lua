-- ARGV: a note, the text that the caller knows, and that which replaces it.
local note, from, to = take(), take(), take()
local text = redis.call('HGET', META, note) or ''
if text == from and from ~= to then
  raise()
  redis.call('HSET', META, note, to, note .. ' at', int(version))
  text = to
end
return {'ok', text}
