-- Shared by the scripts that grant locks: it is put in front of each of them.
--
-- A lock held exclusively is a string, its owner; a lock held by readers is a
-- sorted set of owners by the Unix millisecond at which each one's time ends,
-- and the key itself ends with the last of them.

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function int(n) return string.format('%.0f', n) end

-- mint returns a fencing token above every one that the fences have seen and
-- reserves that many more after it. It starts from the clock in microseconds,
-- so that tokens go on rising when the fences are lost.
local function mint(fences, reserve)
  local token, raised = clock[1] * 1000000 + clock[2], false
  for _, fence in ipairs(fences) do
    local seen = redis.call('SET', fence, int(token + reserve), 'EX', 86400, 'GET')
    if seen and tonumber(seen) >= token then token, raised = tonumber(seen) + 1, true end
  end
  if raised then
    for _, fence in ipairs(fences) do redis.call('SET', fence, int(token + reserve), 'EX', 86400) end
  end
  return token
end

-- extend has a key end no sooner than in so many ms: an earlier call that comes
-- late takes nothing away.
local function extend(key, ttl)
  if redis.call('PTTL', key) < ttl then redis.call('PEXPIRE', key, int(ttl)) end
end

-- read adds a reader, or gives one more time, and takes none away.
local function read(lock, owner, ttl)
  local ends = math.max(now + ttl, tonumber(redis.call('ZSCORE', lock, owner) or 0))
  redis.call('ZADD', lock, int(ends), owner)
  redis.call('PEXPIREAT', lock, redis.call('ZRANGE', lock, -1, -1, 'WITHSCORES')[2])
end
