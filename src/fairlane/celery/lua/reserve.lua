-- Chooses the least loaded queue for each nonce and takes the lease, in one step.
-- args: version of the queue list, task name, "1" for weights, number of nonces, the nonces, then leases
--   of failed publishes to give back
-- returns: a queue per nonce; false when the queues are not configured, or configured differently
-- cost: O(nonces + returned leases)
local version, task, weighted, count = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
if redis.call('GET', key('version')) ~= version then return false end
for index = 5 + count, #ARGV do release_lease(split_lease(ARGV[index])) end
local now, weight, chosen = now_seconds(), weight_of(task, weighted), {}
for index = 5, 4 + count do
  local queue, score = unpack(redis.call('ZRANGE', key('load'), 0, 0, 'WITHSCORES'))
  redis.call('ZADD', pending_of(queue), now, ARGV[index])
  weigh(queue, ARGV[index], weight)
  refresh(queue, score)
  chosen[#chosen + 1] = queue
end
return chosen
