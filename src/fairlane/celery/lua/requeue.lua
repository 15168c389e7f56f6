-- Running leases whose message may wait again: pending, for the reconciler to look for. The time of
-- the start is kept, so that the reconciler's grace period is not granted twice.
-- args: leases
-- cost: O(leases)
for _, lease in ipairs(ARGV) do
  local queue, nonce = split_lease(lease)
  local started = redis.call('ZSCORE', running_of(queue), nonce)
  if started then
    redis.call('ZREM', running_of(queue), nonce)
    redis.call('ZADD', pending_of(queue), started, nonce)
    redis.call('HDEL', key('owners'), nonce)
    refresh(queue)
  end
end
