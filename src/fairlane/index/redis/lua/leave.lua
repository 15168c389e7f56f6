-- Removes the worker from the idle workers: it is not woken any more.
-- KEYS prefix
-- ARGV worker text: its id
redis.call('ZREM', prefix .. 'idle', worker)
redis.call('HDEL', prefix .. 'idlers', worker)
