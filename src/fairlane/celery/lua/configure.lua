-- Sets the balanced queues and computes their loads from the leases.
-- args: version, "1" for weights, then every queue in the order of its index
-- cost: O(queues), with weights O(leases)
local version, weighted = ARGV[1], ARGV[2]
redis.call('DEL', key('load'))
for index = 3, #ARGV do
  local queue = ARGV[index]
  redis.call('ZADD', key('load'), (index - 3) / 1000000, queue)
  redis.call('DEL', key('work:' .. queue))
  if weighted == '1' then
    redis.call('SET', key('work:' .. queue), 0)
    for _, set in ipairs({pending_of(queue), running_of(queue)}) do
      for _, nonce in ipairs(redis.call('ZRANGE', set, 0, -1)) do
        redis.call('INCRBY', key('work:' .. queue), redis.call('HGET', key('weights'), nonce) or 1000)
        redis.call('HSETNX', key('weights'), nonce, 1000)
      end
    end
  end
  refresh(queue)
end
redis.call('SET', key('version'), version)
