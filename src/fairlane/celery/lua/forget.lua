-- Deletes every lease of the given queues.
-- args: queues
-- cost: O(leases of these queues)
for _, queue in ipairs(ARGV) do
  for _, set in ipairs({pending_of(queue), running_of(queue)}) do
    for _, nonce in ipairs(redis.call('ZRANGE', set, 0, -1)) do
      redis.call('HDEL', key('owners'), nonce)
      redis.call('HDEL', key('weights'), nonce)
    end
    redis.call('DEL', set)
  end
  redis.call('SET', key('work:' .. queue), 0, 'XX')
  refresh(queue)
end
