-- Adopts messages of the broker, or running tasks, that have no lease.
-- args: "" for pending or the worker for running, then leases
-- returns: how many were adopted
-- cost: O(leases)
local owner, adopted, now = ARGV[1], 0, now_seconds()
for index = 2, #ARGV do
  local queue, nonce = split_lease(ARGV[index])
  if owner ~= '' then
    redis.call('ZREM', pending_of(queue), nonce)
    redis.call('HSET', key('owners'), nonce, owner)
    adopted = adopted + redis.call('ZADD', running_of(queue), now, nonce)
  elseif not redis.call('ZSCORE', running_of(queue), nonce) then
    adopted = adopted + redis.call('ZADD', pending_of(queue), 'NX', now, nonce)
  end
  if redis.call('EXISTS', key('work:' .. queue)) == 1 then weigh(queue, nonce, 1000) end
  refresh(queue)
end
return adopted
