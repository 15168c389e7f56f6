-- Everything counted: {depths, pools, gates, held, idle, lanes}.
-- KEYS prefix
--@include gates
--@include desk
local depths, keys, lanes, found_lanes = {}, {}, {}, {}

local function depth(service, rank)
  local key = service .. '|' .. rank
  if not depths[key] then
    depths[key] = {service, rank, 0, 0, -1}
    keys[#keys + 1] = key
  end
  return depths[key]
end

-- In bands without tiers a line counts where its head was born.
local function count_flow(service, queue, flow)
  local rank, head = queue.rank, flows.look(flow)
  if queue.band ~= TIER then rank = waiting_entry(head.id).spec.rank end
  local found = depth(service, rank)
  found[3] = found[3] + call('ZCARD', flow.line)
  if found[5] == -1 or head.score < found[5] then found[5] = head.score end
end

for _, service in ipairs(desk.all()) do
  local counts = pairs_of(call('HGETALL', life .. 'queues:' .. service))
  for _, queue in ipairs(desk.queues(service)) do
    lanes[queue.lane] = (lanes[queue.lane] or 0) + tonumber(counts[queue.key])
    for _, flow in ipairs(flows.all(queue.key)) do count_flow(service, queue, flow) end
  end
end
for field, n in pairs(pairs_of(call('HGETALL', life .. 'delayed'))) do
  local lane, rank = match(field, '^(.*)|(%d+)$')
  local found = depth(match(lane, '^[^|]*'), tonumber(rank))
  found[4] = found[4] + tonumber(n)
end

local found_depths, found_pools, found_gates = {}, {}, {}
for i, key in ipairs(keys) do found_depths[i] = depths[key] end
for lane, n in pairs(lanes) do found_lanes[#found_lanes + 1] = {lane, n} end
for name, text in pairs(pairs_of(call('HGETALL', life .. 'limits'))) do
  local taken = call('HLEN', life .. 'slots:' .. name)
  found_pools[#found_pools + 1] = {name, tonumber(match(text, '^%d+')), taken}
end
for key, gate in pairs(gates.all()) do
  if gate.closed_until > 0 then
    found_gates[#found_gates + 1] = {key, gate.failed, gate.closed_until, gate.delay, gate.probe}
  end
end
local held, idle = call('HLEN', life .. 'held'), call('ZCARD', prefix .. 'idle')
return {found_depths, found_pools, found_gates, held, idle, found_lanes}
