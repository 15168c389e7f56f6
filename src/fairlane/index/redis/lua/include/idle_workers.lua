--@include service_queue
--@include pools
--@include circuit_breakers
-- Idle workers, the longest idle first, and the choice of the workers to wake. Each process subscribes to
-- one wake-up channel. A channel without subscribers belongs to a dead process. A process that hangs is
-- still subscribed, but does not renew its `alive` key. The idle workers of both are removed.
local idle = {known = {}, processes = {}, lanes = {}, last = '-inf', page = 4}
local ALIVE_FOR = 15000 -- milliseconds after which a process that does not renew its key is treated as dead
local MOST_READ = 1000 -- the most workers read at once

local function set_of(list)
  if list == cjson.null or list == nil then return nil end
  local found = {}
  for _, each in ipairs(list) do found[each] = true end
  return found
end

-- Decodes the kind of a worker: process, services, excluded, region, regions, capabilities and tiers.
local function read_kind(text)
  local kind = cjson.decode(text)
  kind.services, kind.tiers = set_of(kind.services), set_of(kind.tiers)
  kind.capabilities, kind.excluded = set_of(kind.capabilities), set_of(kind.excluded) or {}
  if kind.region == cjson.null then kind.region = nil end
  kind.places, kind.regions = kind.regions or {kind.region or false}, set_of(kind.regions)
  return kind
end

-- Decodes an idle worker: its kind in the first line, then its loaded model, which may have line breaks.
local function read_worker(id, text)
  local kind, model = match(text, '^([^\n]*)\n(.*)$')
  local worker = read_kind(kind)
  worker.id, worker.model = id, model
  return worker
end

local function covers(worker, lane)
  if worker.services and not worker.services[lane.service] then return false end
  if worker.excluded[lane.service] then return false end
  local there = #lane.regions == 0
  for _, region in ipairs(lane.regions) do
    there = there or (worker.regions and worker.regions[region] or region == worker.region)
  end
  for _, capability in ipairs(lane.capabilities) do
    if not worker.capabilities[capability] then return false end
  end
  return there
end

local function lane_of(name)
  local lane = idle.lanes[name]
  if not lane then
    lane = read_lane(name)
    idle.lanes[name] = lane
  end
  return lane
end

-- Whether jobs of this lane may run in this region (or nil).
local function allows(lane, region)
  local found = #lane.regions == 0
  for _, each in ipairs(lane.regions) do found = found or each == region end
  return found
end

-- Whether jobs of this lane may run in this region only.
local function is_bound(lane, region)
  return #lane.regions == 1 and lane.regions[1] == region
end

-- The regions in which this worker can run jobs of this service; false stands for no region.
local function places_in_file_order(service, worker)
  if not worker.regions then return worker.places end
  if #service.regions == 0 then return {false} end
  local found = {}
  for _, each in ipairs(service.regions) do
    if worker.regions[each[1]] then found[#found + 1] = each[1] end
  end
  return found
end

-- Whether the worker accepts jobs of this lane and tier.
local function serves(worker, queue)
  if worker.tiers and queue.rank >= 0 and not worker.tiers[tiers().names[queue.rank + 1]] then
    return false
  end
  return covers(worker, lane_of(queue.lane))
end

function idle.leave(id)
  if call('ZREM', prefix .. 'idle', id) == 1 then call('HDEL', prefix .. 'idlers', id) end
end

-- Records these workers, each with id, kind and loaded model, as idle in this order.
function idle.file(all)
  local order, texts, kinds = {}, {}, {}
  local number = #all > 0 and next_number(#all) - #all
  for i, each in ipairs(all) do
    order[2 * i - 1], order[2 * i] = number + i, each.id
    texts[2 * i - 1], texts[2 * i] = each.id, each.kind .. '\n' .. each.loaded.model
    kinds[each.kind] = true
  end
  with_all('ZADD', prefix .. 'idle', order)
  with_all('HSET', prefix .. 'idlers', texts)
  for kind in pairs(kinds) do
    call('SET', prefix .. 'alive:' .. cjson.decode(kind).process, '1', 'PX', ALIVE_FOR)
  end
end

local function is_alive(process, known)
  if known[process] == nil then
    known[process] = call('EXISTS', prefix .. 'alive:' .. process) == 1
  end
  return known[process]
end

-- Reads the next idle workers, the longest idle first, and removes those of dead processes.
local function read_more()
  local rows = call('ZRANGEBYSCORE', prefix .. 'idle', '(' .. idle.last, '+inf', 'WITHSCORES',
    'LIMIT', 0, idle.page)
  local ids = {}
  for i = 1, #rows, 2 do ids[#ids + 1] = rows[i] end
  for i, text in ipairs(values_of(prefix .. 'idlers', ids)) do
    local worker = text and read_worker(ids[i], text)
    if worker and is_alive(worker.process, idle.processes) then
      idle.known[#idle.known + 1] = worker
    else
      idle.leave(ids[i])
    end
  end
  idle.last, idle.saw_all = rows[#rows], #ids < idle.page
  idle.page = math.min(MOST_READ, idle.page * 4)
end

-- The i-th idle worker that was not woken yet, or nil.
function idle.at(i)
  while i > #idle.known and not idle.saw_all do read_more() end
  return idle.known[i]
end

-- Wakes the i-th worker. Returns whether its process is subscribed: a killed process is not.
function idle.wake_at(i)
  local worker = table.remove(idle.known, i)
  idle.leave(worker.id)
  return call('PUBLISH', prefix .. 'bell:' .. worker.process, worker.id) > 0
end

local function is_free(service, region)
  if service.paused then return false end
  for _, name in ipairs(pool_names(service, region)) do
    local pool = pools.get(name)
    if pool and pool.limit - pool.held <= 0 then return false end
  end
  return true
end

-- The regions that can start a job of this lane now, numbered from 0, the least loaded first, and how many
-- they are. None for a service without regions.
local function ranked_regions(lane, now)
  local service, found, ranks = service_named(lane.service), {}, {}
  for n, each in ipairs(service.regions) do
    local region, limit = each[1], each[2]
    if is_free(service, region) and breakers.admits(service.name, region, now) and allows(lane, region) then
      local pool = limit > 0 and pools.get('svc:' .. service.name .. '@' .. region)
      found[#found + 1] = {region = region, n = n, load = pool and pool.held / limit or 0}
    end
  end
  table.sort(found, function(a, b)
    if a.load ~= b.load then return a.load < b.load end
    return a.n < b.n
  end)
  for i, each in ipairs(found) do ranks[each.region] = i - 1 end
  return ranks, #found
end

-- The worker to wake for a job: one in the best of the ranked regions; of these the first that has its
-- model loaded, else the longest idle.
local function best_for(entry, lane, now)
  local tier, model, chosen, i = tiers().names[entry.spec.rank + 1], entry.spec.model, nil, 1
  local worker, best_rank, best_cold, ranks, last = idle.at(i), nil, nil, nil, nil
  while worker do
    if covers(worker, lane) and (not worker.tiers or worker.tiers[tier]) then
      if not ranks then ranks, last = ranked_regions(lane, now) end
      local rank, cold = last, model ~= '' and worker.model ~= model
      for _, place in ipairs(worker.places) do rank = math.min(rank, ranks[place] or last) end
      if not chosen or rank < best_rank or (rank == best_rank and best_cold and not cold) then
        chosen, best_rank, best_cold = i, rank, cold
      end
      if best_rank == 0 and not best_cold then return chosen end
    end
    i = i + 1
    worker = idle.at(i)
  end
  return chosen
end

-- Wakes one worker for each job that is ready, or will be before an idle worker claims again by itself. A
-- worker woken early claims again in time.
function idle.wake_for(entries, now)
  local lanes = {}
  for _, entry in ipairs(entries) do
    if not idle.at(1) then return end
    if entry.ready_at < now + LOOK_AGAIN_MICROSECONDS then
      lanes[entry.spec.lane] = lanes[entry.spec.lane] or read_lane(entry.spec.lane)
      local i = best_for(entry, lanes[entry.spec.lane], now)
      while i and not idle.wake_at(i) do i = best_for(entry, lanes[entry.spec.lane], now) end
    end
  end
end

local function has_work_for(worker, queues)
  for _, each in ipairs(queues) do
    for _, place in ipairs(worker.places) do
      local region = place or nil
      if is_free(each.service, region) then
        for _, queue in ipairs(each.queues) do
          if serves(worker, queue) and allows(lane_of(queue.lane), region) then return true end
        end
      end
    end
  end
  return false
end

-- The services with waiting jobs that could start now in some region.
local function busy_queues()
  local found = {}
  for _, name in ipairs(service_queue.all()) do
    local service = service_named(name)
    if is_free(service, nil) then
      local waiting_there = service_queue.queues(name)
      if #waiting_there > 0 then found[#found + 1] = {service = service, queues = waiting_there} end
    end
  end
  return found
end

-- Wakes up to n workers that could start a waiting job now, or all of them if n is nil.
function idle.wake(n)
  if not idle.at(1) then return end
  local queues, i = busy_queues(), 1
  while #queues > 0 and n ~= 0 do
    local worker = idle.at(i)
    if not worker then return end
    if has_work_for(worker, queues) then
      if idle.wake_at(i) and n then n = n - 1 end
    else
      i = i + 1
    end
  end
end
