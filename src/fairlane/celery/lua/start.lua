-- A worker starts the task: the lease is running, also when its pending half was lost.
-- args: lease, worker
local queue, nonce = split_lease(ARGV[1])
redis.call('ZREM', pending_of(queue), nonce)
redis.call('ZADD', running_of(queue), now_seconds(), nonce)
redis.call('HSET', key('owners'), nonce, ARGV[2])
refresh(queue)
