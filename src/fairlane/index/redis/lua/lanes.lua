-- The number of waiting jobs in each lane of this service, delayed ones included: {lane, n} for each.
-- KEYS prefix
-- ARGV service text
--@include service_queue
local waiting, found = {}, {}
local counts = pairs_of(call('HGETALL', life .. 'queues:' .. service))
for _, queue in ipairs(service_queue.queues(service)) do
  waiting[queue.lane] = (waiting[queue.lane] or 0) + tonumber(counts[queue.key])
end
for field, n in pairs(pairs_of(call('HGETALL', life .. 'delayed'))) do
  local lane = match(field, '^(.*)|%d+$')
  if match(lane, '^[^|]*') == service then waiting[lane] = (waiting[lane] or 0) + tonumber(n) end
end
for lane, n in pairs(waiting) do found[#found + 1] = {lane, n} end
return found
