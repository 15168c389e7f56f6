-- Takes a pending lease on a queue that the caller chose.
-- args: lease, task name, "1" for weights, then leases of failed publishes to give back
-- cost: O(returned leases)
local queue, nonce = split_lease(ARGV[1])
for index = 4, #ARGV do release_lease(split_lease(ARGV[index])) end
redis.call('ZADD', pending_of(queue), now_seconds(), nonce)
weigh(queue, nonce, weight_of(ARGV[2], ARGV[3]))
refresh(queue)
