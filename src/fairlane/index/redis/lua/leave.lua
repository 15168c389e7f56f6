-- The worker is not idle any more and must not be woken.
-- KEYS prefix
-- ARGV worker text: its id
redis.call('ZREM', prefix .. 'idle', worker)
redis.call('HDEL', prefix .. 'idlers', worker)
