-- Runs one command on a key unless an older token than one seen before comes
-- with it.
--
-- KEYS 1 fence, 2 key
-- ARGV 1 token, 2 name of the command, then what follows the key in it
-- Returns {1, the command's reply}, or {0, the token that was seen}

local seen = redis.call('GET', KEYS[1])
if seen and tonumber(seen) > tonumber(ARGV[1]) then return {0, tonumber(seen)} end
if seen ~= ARGV[1] then redis.call('SET', KEYS[1], ARGV[1]) end
return {1, redis.call(ARGV[2], KEYS[2], unpack(ARGV, 3))}
