local sent = redis.pcall(PUBLISH, CHANNEL, int(version))
return {'ok', redis.call('INFO', 'memory'), redis.call('INFO', 'persistence'), redis.call('INFO', 'replication'), type(sent) == 'table' and sent.err or ''}
