-- The task has ended: the lease is gone. Repeating it changes nothing.
-- args: lease, task name, its duration in milliseconds (0 = not measured)
local queue, nonce = split_lease(ARGV[1])
release_lease(queue, nonce)
local duration = tonumber(ARGV[3])
if duration > 0 then
  local known = tonumber(redis.call('HGET', key('durations'), ARGV[2]) or duration)
  redis.call('HSET', key('durations'), ARGV[2], math.floor(known * 0.8 + duration * 0.2))
end
