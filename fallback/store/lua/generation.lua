if differs() then
  return {'settings', settings}
end
local info = redis.call('INFO', 'server')
return {'ok', generation, identity, math.max(0, quarantine - now), redis.call('HLEN', PARTITIONS) - 1,
  string.match(info, 'run_id:(%x+)'), string.match(info, 'uptime_in_seconds:(%d+)') or '0'}
