-- Counts of the whole index: {depths, pools, breakers, held, idle, lanes, delayed lanes, oldest by lane,
-- front retries by lane}.
-- KEYS prefix
-- ARGV examined number: the most flows examined per queue, those that have aged longest
--@include flows
--@include circuit_breakers
--@include service_queue
local depths, keys, lanes, found_lanes = {}, {}, {}, {}
local delayed, found_delayed, oldest, found_oldest, found_front = {}, {}, {}, {}, {}

local function depth(service, rank)
  local key = service .. '|' .. rank
  if not depths[key] then
    depths[key] = {service, rank, 0, 0, -1}
    keys[#keys + 1] = key
  end
  return depths[key]
end

-- Skips and front retries have no tier: a flow counts for the tier of its first job. Flows that were
-- not examined count for the tier of the last examined one.
local function count_queue(service, queue, total)
  local is_tier, left, found = queue.band == TIER, total, nil
  local ranking = is_tier and service.fair and 'aged:' or 'fair:'
  for _, flow in ipairs((flows.some(queue.key, ranking, examined))) do
    local head = flows.look(flow)
    found = depth(service.name, is_tier and queue.rank or waiting_entry(head.id).spec.rank)
    if not is_tier then
      local n = call('ZCARD', flow.line)
      found[3], left = found[3] + n, left - n
    end
    if found[5] == -1 or head.score < found[5] then found[5] = head.score end
    local known = oldest[queue.lane]
    if not known or head.score < known then oldest[queue.lane] = head.score end
  end
  if found then found[3] = found[3] + left end
end

for _, name in ipairs(service_queue.all()) do
  local counts = pairs_of(call('HGETALL', life .. 'queues:' .. name))
  for _, queue in ipairs(service_queue.queues(name)) do
    local n = tonumber(counts[queue.key])
    lanes[queue.lane] = (lanes[queue.lane] or 0) + n
    if queue.band == FRONT and n > 0 then found_front[#found_front + 1] = {queue.lane, n} end
    count_queue(service_named(name), queue, n)
  end
end
for field, n in pairs(pairs_of(call('HGETALL', life .. 'delayed'))) do
  local lane, rank = match(field, '^(.*)|(%d+)$')
  local found = depth(match(lane, '^[^|]*'), tonumber(rank))
  found[4] = found[4] + tonumber(n)
  delayed[lane] = (delayed[lane] or 0) + tonumber(n)
end

local found_depths, found_pools, found_breakers = {}, {}, {}
for i, key in ipairs(keys) do found_depths[i] = depths[key] end
for lane, n in pairs(lanes) do found_lanes[#found_lanes + 1] = {lane, n} end
for lane, n in pairs(delayed) do found_delayed[#found_delayed + 1] = {lane, n} end
for lane, at in pairs(oldest) do found_oldest[#found_oldest + 1] = {lane, at} end
for name, text in pairs(pairs_of(call('HGETALL', life .. 'limits'))) do
  local taken = call('HLEN', life .. 'slots:' .. name)
  found_pools[#found_pools + 1] = {name, tonumber(match(text, '^%d+')), taken}
end
for key, breaker in pairs(breakers.all()) do
  if breaker.open_until > 0 then
    found_breakers[#found_breakers + 1] = {key, breaker.failed, breaker.open_until, breaker.delay, breaker.probe}
  end
end
local held, idle = call('HLEN', life .. 'held'), call('ZCARD', prefix .. 'idle')
return {found_depths, found_pools, found_breakers, held, idle, found_lanes, found_delayed, found_oldest,
  found_front}
