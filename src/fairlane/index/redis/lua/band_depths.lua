-- The queues of this service: {band, rank, jobs, flows} for each.
-- KEYS prefix
-- ARGV service text
--@include service_queue
local found = {}
local counts = pairs_of(call('HGETALL', life .. 'queues:' .. service))
for i, queue in ipairs(service_queue.queues(service)) do
  local flows = call('ZCARD', life .. 'fair:' .. queue.key) + call('SCARD', life .. 'parked:' .. queue.key)
  found[i] = {queue.band, queue.rank, tonumber(counts[queue.key]), flows}
end
return found
