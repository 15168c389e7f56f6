--@include desk
--@include pools
-- Idle workers, the longest idle first: who is woken for which. A bell is a list per process; the
-- process waits at its end. Workers of a process that is gone are forgotten.
local idle = {}
local BELL_KEPT = 60000 -- milliseconds that a bell rings for a process that does not listen
local ALIVE_FOR = 15000 -- milliseconds after which a silent process counts as gone
local A_PAGE = 1000

local function set_of(list)
  if list == cjson.null or list == nil then return nil end
  local found = {}
  for _, each in ipairs(list) do found[each] = true end
  return found
end

local function read_worker(text)
  local worker = cjson.decode(text)
  worker.services, worker.tiers = set_of(worker.services), set_of(worker.tiers)
  worker.capabilities = set_of(worker.capabilities)
  if worker.region == cjson.null then worker.region = nil end
  return worker
end

local function covers(worker, lane)
  if worker.services and not worker.services[lane.service] then return false end
  local there = #lane.regions == 0
  for _, region in ipairs(lane.regions) do there = there or region == worker.region end
  for _, capability in ipairs(lane.capabilities) do
    if not worker.capabilities[capability] then return false end
  end
  return there
end

-- Whether the worker may take from this queue at all.
local function serves(worker, queue)
  if worker.tiers and queue.rank >= 0 and not worker.tiers[tiers().names[queue.rank + 1]] then
    return false
  end
  return covers(worker, read_lane(queue.lane))
end

function idle.leave(id)
  call('ZREM', prefix .. 'idle', id)
  call('HDEL', prefix .. 'idlers', id)
end

function idle.file(worker, text)
  call('ZADD', prefix .. 'idle', next_number(), worker.id)
  call('HSET', prefix .. 'idlers', worker.id, text)
  call('SET', prefix .. 'alive:' .. worker.process, '1', 'PX', ALIVE_FOR)
end

local function is_alive(process, known)
  if known[process] == nil then
    known[process] = call('EXISTS', prefix .. 'alive:' .. process) == 1
  end
  return known[process]
end

-- All idle workers, in order; those whose process is gone leave.
function idle.all()
  if idle.known then return idle.known end
  idle.known = {}
  local ids, processes = call('ZRANGE', prefix .. 'idle', 0, -1), {}
  for from = 1, #ids, A_PAGE do
    local to = math.min(#ids, from + A_PAGE - 1)
    for i, text in ipairs(call('HMGET', prefix .. 'idlers', unpack(ids, from, to))) do
      local worker = text and read_worker(text)
      if worker and is_alive(worker.process, processes) then
        idle.known[#idle.known + 1] = worker
      else
        idle.leave(ids[from + i - 1])
      end
    end
  end
  return idle.known
end

function idle.ring(worker)
  worker.woken = true
  idle.leave(worker.id)
  local bell = prefix .. 'bell:' .. worker.process
  call('RPUSH', bell, worker.id)
  call('PEXPIRE', bell, BELL_KEPT)
end

-- One worker for one job: a warm one first, else the longest idle.
function idle.wake_for(entry)
  local lane, longest = nil, nil
  for _, worker in ipairs(idle.all()) do
    lane = lane or read_lane(entry.lane)
    local tier = tiers().names[entry.rank + 1]
    if not worker.woken and covers(worker, lane) and (not worker.tiers or worker.tiers[tier]) then
      if entry.model == '' or worker.model == entry.model then
        longest = worker
        break
      end
      longest = longest or worker
    end
  end
  if longest then idle.ring(longest) end
end

local function has_room(service, region)
  if service.paused then return false end
  for _, name in ipairs(pool_names(service, region)) do
    local pool = pools.get(name)
    if pool and pool.limit - pool.held <= 0 then return false end
  end
  return true
end

local function has_work_for(worker, desks)
  for _, each in ipairs(desks) do
    if has_room(each.service, worker.region) then
      for _, queue in ipairs(each.queues) do
        if serves(worker, queue) then return true end
      end
    end
  end
  return false
end

-- Up to n workers for which something waits that they could start now, or all of them.
function idle.wake(n)
  local desks
  for _, worker in ipairs(idle.all()) do
    if n and n <= 0 then return end
    if not desks then
      desks = {}
      for _, name in ipairs(desk.all()) do
        desks[#desks + 1] = {service = service_named(name), queues = desk.queues(name)}
      end
    end
    if not worker.woken and has_work_for(worker, desks) then
      idle.ring(worker)
      if n then n = n - 1 end
    end
  end
end
