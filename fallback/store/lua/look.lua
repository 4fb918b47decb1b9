-- A script of its own: what the store is as of now, for a caller that knows what it was.
redis.call('PERSIST', KEYS[1]) -- fails on a master that was demoted
local look = redis.call('HMGET', KEYS[1], 'generation', 'version', 'beat', 'quarantine', 'clock', 'lag')
local time = redis.call('TIME')
look[7], look[8] = time[1], time[2]
return look
