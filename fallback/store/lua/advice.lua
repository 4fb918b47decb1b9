return {'ok', redis.call('INFO', 'memory'), redis.call('INFO', 'persistence'), redis.call('INFO', 'replication')}
