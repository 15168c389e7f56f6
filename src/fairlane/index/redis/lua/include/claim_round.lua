--@include lane_queue
--@include affinity
--@include model_times
--@include slot_models
--@include held
--@include delayed_jobs
--@include pools
--@include circuit_breakers
--@include idle_workers
-- One claim: the next jobs for several workers. The candidates of every service are cached between picks
-- and read again only where a pick has changed them.
local round = {loads = {}, asked = 0}
local NO_SLOTS = {}
local RATE_WINDOW = 60000000 -- as in model/service.py

local function admits(service, region, now)
  if service.paused then return false end
  return not round.is_gated or breakers.admits(service.name, region, now)
end

-- The number of jobs of this service that have free slots.
local function spare_of(view)
  local least = round.asked
  for _, pool in ipairs(view.pools) do least = math.min(least, pool.limit - pool.held) end
  return least
end

local function task_pool(service, name)
  if is_rate_pool(name) then return pools.made(name, service.rate, RATE_WINDOW) end
  return pools.made(name, service.limit, 0)
end

-- A view of a service with those of its queues that are served.
function round.view(service, served)
  for _, queue in ipairs(served) do queue.by_user = service.fair and queue.band == TIER end
  table.sort(served, function(a, b) return a.rank < b.rank end)
  return {
    service = service, queues = served, pools = {}, firsts = {}, aged = {},
    credits = order.credits(service.name),
  }
end

-- The number of waiting jobs in these queues that may run in this region only.
local function bound_jobs(service, region, served)
  local found, counts = 0, pairs_of(call('HGETALL', life .. 'queues:' .. service.name))
  for _, queue in ipairs(served) do
    if is_bound(lane_of(queue.lane), region) then found = found + tonumber(counts[queue.key]) end
  end
  return found
end

-- Adds a view of a service in one region (or nil). The views of one service share its credits.
local function add_view(service, region, served, group, now)
  local view = round.view(service, served)
  view.had, view.region, view.group, view.number = view.credits, region, group, #round.all
  for _, pool_name in ipairs(pool_names(service, region)) do
    local pool = service.is_task and task_pool(service, pool_name) or pools.get(pool_name)
    if pool then
      pools.expire(pool, now)
      view.pools[#view.pools + 1] = pool
      if region and pool_name == 'svc:' .. service.name .. '@' .. region then view.region_pool = pool end
    end
  end
  if round.worker.regions and view.region_pool then view.bound = bound_jobs(service, region, served) end
  group[#group + 1] = view
  round.views[#round.views + 1], round.all[#round.all + 1] = view, view
  flows.asked = math.max(flows.asked, spare_of(view))
end

-- Collects the services, regions and queues that workers of this kind can use.
local function collect_views(worker, now)
  round.worker, round.views, round.all, round.is_gated = worker, {}, {}, breakers.any()
  flows.asked = 0
  for _, name in ipairs(service_queue.all()) do
    local service, served, group = service_named(name), {}, {}
    for _, queue in ipairs(service_queue.queues(name)) do
      if serves(worker, queue) then served[#served + 1] = queue end
    end
    for _, place in ipairs(#served > 0 and places_in_file_order(service, worker) or NO_SLOTS) do
      local region, here = place or nil, served
      if admits(service, region, now) then
        if worker.regions then
          here = {}
          for _, queue in ipairs(served) do
            if allows(lane_of(queue.lane), region) then here[#here + 1] = queue end
          end
        end
        if #here > 0 then add_view(service, region, here, group, now) end
      end
    end
  end
end

-- The outstanding work of a region relative to its limit: the taken slots, and the waiting jobs that may
-- run only there; 0 without a limit.
local function load_of(view)
  local pool = view.region_pool
  return pool and (pool.held + view.bound) / pool.limit or 0
end

-- Sorts the views: the least loaded first, then in the order of the file.
local function sort_by_load(views)
  for _, view in ipairs(views) do view.load = load_of(view) end
  table.sort(views, function(a, b)
    if a.load ~= b.load then return a.load < b.load end
    return a.number < b.number
  end)
end

-- Starts the claim of the next worker. A worker of the same kind reuses the views of the last one.
function round.begin(kind, loaded, now)
  round.granted, round.loaded, round.now = {}, loaded, now -- granted: id, encoded entry, slots, region for each job
  if kind == round.kind then return end
  if round.kind then round.save() end
  round.kind, round.gone = kind, later.list('HDEL', life .. 'jobs')
  collect_views(read_kind(kind), now)
end

local function has_room(view, reserved)
  local used = view.pools
  for i = 1, #used do
    local kept = reserved and hold.covers(reserved, used[i].name) and 1 or 0
    if used[i].limit - used[i].held <= kept then return false end
  end
  return true
end

local function offer(found, candidate)
  local known = found[candidate.kind]
  if not known or order.less(candidate, known) then found[candidate.kind] = candidate end
end

-- The best candidate of each kind. Queues are sorted by tier, best first: of tiers worse than the best
-- fresh candidate's, only the aged jobs are examined.
function round.heads(view)
  if view.heads then return view.heads end
  local found, firsts, aged, served = {}, view.firsts, view.aged, view.queues
  for i = 1, #served do
    local queue, fresh = served[i], found[KIND_FRESH]
    if not fresh or queue.rank <= fresh.level then
      if firsts[i] == nil then firsts[i] = queues.first(queue) or false end
      if firsts[i] then offer(found, firsts[i]) end
    end
    if aged[i] == nil then aged[i] = queues.aged(queue, round.now) or false end
    if aged[i] then offer(found, aged[i]) end
  end
  view.heads = found
  return found
end

-- --- reserving the last slot -----------------------------------------------------------------------
local function is_held_for(view, reserved)
  if not reserved or not has_room(view, nil) then return false end
  local aged = round.heads(view)[KIND_AGED]
  return aged ~= nil and aged.of.head.id == reserved.job
end

local function consider_hold(view)
  local aged = round.heads(view)[KIND_AGED]
  if not aged then return end
  if round.now - aged.since < RESERVE_AFTER_PATIENCES * tiers().patience[aged.rank + 1] then return end
  local reserved = hold.current(round.now)
  if not reserved or aged.since < reserved.since or aged.of.head.id == reserved.job then
    local names = {}
    for _, pool in ipairs(view.pools) do names[#names + 1] = pool.name end
    hold.set({since = aged.since, job = aged.of.head.id, names = names, ends = round.now + RESERVATION_MICROSECONDS})
  end
end

-- --- choosing ----------------------------------------------------------------------------------------
-- The service that is served next, its candidate, and whether that jumps ahead of the normal order. In
-- several regions the same candidate is found again: the least loaded region gets it.
local function best_choice()
  local best_view, best, best_jumped
  if round.worker.regions then sort_by_load(round.views) end
  local reserved, views = hold.current(round.now), round.views
  for i = 1, #views do
    local view = views[i]
    if not has_room(view, reserved) and not is_held_for(view, reserved) then
      consider_hold(view)
      reserved = hold.current(round.now)
    else
      local chosen, jumped = order.choose(round.heads(view), view.credits, view.service.shares)
      if chosen and (not best or order.service_goes_first(chosen, best)) then
        best_view, best, best_jumped = view, chosen, jumped
      end
    end
  end
  return best_view, best, best_jumped
end

-- The pool whose slots remember their models: the most specific one of a called service. Nil if the worker
-- remembers its model.
function round.model_pool(view)
  if view.model_pool == nil then
    local found = false
    for _, pool in ipairs(view.service.called and view.service.keeps_models and view.pools or NO_SLOTS) do
      if sub(pool.name, 1, 4) == 'svc:' then found = pool end
    end
    view.model_pool = found and found.limit <= MAX_MODEL_SLOTS and found
  end
  return view.model_pool or nil
end

-- The best job for this model, which is loaded in a slot of the called service, or (nil) in the memory of
-- the worker.
local function best_warm(model, called)
  local best_view, best
  local reserved = hold.current(round.now)
  for _, view in ipairs(called and {called} or round.views) do
    if view.service.keeps_models and has_room(view, reserved) and (called or not round.model_pool(view)) then
      for _, queue in ipairs(view.queues) do
        local found = queues.warm(queue, model)
        if found and (not best or order.less(found, best)) and
          order.may_jump(found.kind, view.credits, view.service.shares) then
          best_view, best = view, found
        end
      end
    end
  end
  return best_view, best
end

-- Which models were loaded in this service, and when, oldest first.
function round.loads_of(service)
  local known = round.loads[service]
  if not known then
    known = {at = {}, model = {}}
    local rows = call('ZRANGE', life .. 'loaded:' .. service, 0, -1, 'WITHSCORES')
    for i = 1, #rows, 2 do
      known.at[#known.at + 1], known.model[#known.model + 1] = tonumber(rows[i + 1]), match(rows[i], ' (.*)$')
    end
    round.loads[service] = known
  end
  return known
end

-- The first job in fair order that needs the model most users of that tier wait for. A job past its
-- patience is not delayed for a later job of the same user.
local function most_wanted_of(view, up, pick)
  local own, users, models, loads, best = up.of.place.model, {}, 0, {}, nil
  for _, queue in ipairs(view.queues) do
    if queue.rank == pick.rank then
      for model, n in pairs(queues.wanted(queue)) do
        if not users[model] then models = models + 1 end
        users[model] = (users[model] or 0) + n
      end
      if models > MAX_COMPARED_MODELS then return up end
    end
  end
  if models < 2 then return up end
  local known, since = round.loads_of(view.service.name), round.now - residency(pick)
  for i = math.max(1, #known.at - MAX_REMEMBERED_LOADS + 1), #known.at do
    local model = known.model[i]
    if known.at[i] > since then loads[model] = (loads[model] or 0) + 1 end
  end
  local model = most_wanted(users, loads, own)
  if model == own then return up end
  for _, queue in ipairs(view.queues) do
    local found = queue.rank == pick.rank and queues.warm(queue, model)
    if found and (not best or order.less(found, best)) then best = found end
  end
  local is_late = round.now - up.score >= pick.patience
  return best and not (is_late and best.of.user == up.of.user) and best or up
end

-- Applies model affinity: may replace the next job by one that needs the loaded model, or, where a model
-- has to be loaded, by one whose model more users wait for.
function round.with_affinity(view, up, jumped)
  local loaded, service, wanted = round.loaded, view.service, up.of.place.model
  if up.kind == KIND_SKIP or not service.keeps_models then return view, up, jumped end
  local pool = (wanted ~= '' or loaded.model ~= '') and round.model_pool(view)
  if pool then
    if wanted == '' then return view, up, jumped end
    loaded = slot_models.get(pool, slot_models.slot_for(pool, wanted))
  end
  if wanted == loaded.model then return view, up, jumped end
  local warm_view, warm
  if loaded.model ~= '' then warm_view, warm = best_warm(loaded.model, pool and view) end
  local may_load = wanted ~= '' and up.kind == KIND_FRESH and service.fair
  if not warm and not may_load then return view, up, jumped end
  local entry = flows.known_head(up.of)
  local pick = {
    rank = entry.spec.rank, patience = tiers().patience[entry.spec.rank + 1], age = round.now - up.since,
    load = load_time(service, wanted), service_time = entry.cost, single_slot = service.limit == 1,
  }
  if warm and stays(service, loaded, pick, warm.rank, round.now) then
    return warm_view, warm, warm.kind ~= KIND_FRESH
  end
  if may_load and not (warm and warm.rank <= pick.rank) and may_wait(service, pick) then
    up = most_wanted_of(view, up, pick)
  end
  return view, up, jumped
end

-- --- granting ----------------------------------------------------------------------------------------
-- Discards cached candidates of this queue and of all queues of this rank: a user's counter and ageing
-- clock are shared by all lanes of a service and tier.
function round.forget_heads(view, queue_key, rank)
  view.heads = nil
  local served = view.queues
  for i = 1, #served do
    if served[i].rank == rank or served[i].key == queue_key then
      view.firsts[i], view.aged[i] = nil, nil
    end
  end
end

local function touched(view, queue_key, rank)
  for _, changed in ipairs(view.group) do
    round.forget_heads(changed, queue_key, rank)
    if round.is_gated and not admits(view.service, changed.region, round.now) then
      for i, each in ipairs(round.views) do
        if each == changed then table.remove(round.views, i) break end
      end
    end
  end
end

-- In the pool of models this slot is taken, in every other pool the lowest free one.
local function take_slots(view, flow, token, chosen)
  local cap = flow.place.cap
  if cap == 0 and #view.pools == 0 then return NO_SLOTS end
  local slots = {}
  for _, pool in ipairs(view.pools) do
    slots[#slots + 1] = pools.take(pool, token, round.now, pool == view.model_pool and chosen or nil)
  end
  if cap > 0 then
    slots[#slots + 1] = pools.take(pools.of_user(flow.user, cap), token, round.now)
  end
  return slots
end

local function count(view, candidate, jumped)
  local credits = order.granted(view.credits, candidate.kind, view.service.shares, jumped)
  for _, each in ipairs(view.group) do each.credits = credits end
end

local function count_load(service, model, token)
  local key, known = life .. 'loaded:' .. service, round.loads[service]
  call('ZADD', key, round.now, token .. ' ' .. model)
  call('ZREMRANGEBYRANK', key, 0, -MAX_REMEMBERED_LOADS - 1)
  if known then known.at[#known.at + 1], known.model[#known.model + 1] = round.now, model end
  model_times.count_load(service .. '|' .. model)
end

-- Notes the model that a slot, or the worker, has from now on. Returns the chosen slot.
local function note_load(view, model, token)
  local service, pool = view.service, round.model_pool(view)
  local chosen = pool and slot_models.slot_for(pool, model)
  local had = pool and slot_models.get(pool, chosen) or round.loaded
  local has = loaded_after(had, model, round.now)
  if service.keeps_models then
    for _, each in ipairs(view.group) do each.last_model = has end
    if model ~= had.model then count_load(service.name, model, token) end
  end
  if pool then slot_models.set(pool, chosen, has) else round.loaded = has end
  return chosen
end

local function grant(view, flow, in_turn, token)
  local now = round.now
  local entry = flows.known_head(flow)
  local model = entry.spec.model
  local chosen = model ~= '' and note_load(view, model, token) or nil
  local slots = take_slots(view, flow, token, chosen)
  local packed, gone = pools.packed(slots), round.gone
  if packed ~= '' then
    local list = later.list('HSET', life .. 'tokens')
    list[#list + 1], list[#list + 2] = token, packed
  end
  gone[#gone + 1] = entry.id
  service_queue.start(flow, entry, in_turn, now)
  round.number = round.number + 1
  held.file(token, entry, packed, now, round.number, now, view.region)
  if round.is_gated then breakers.let_through(view.service.name, view.region, token) end
  for _, each in ipairs(view.group) do
    if each.bound and is_bound(lane_of(entry.spec.lane), each.region) then each.bound = each.bound - 1 end
  end
  local reserved = hold.get()
  if reserved and reserved.job == entry.id then hold.set(false) end
  touched(view, flow.place.queue, entry.spec.rank)
  local granted = round.granted
  granted[#granted + 1], granted[#granted + 2] = entry.id, entry.text
  granted[#granted + 1], granted[#granted + 2] = slots, view.region or ''
end

-- Hands out the best job under this token. Returns whether there was one.
function round.next(token)
  while true do
    local up_view, up, up_jumped = best_choice()
    if not up_view then return false end
    local view, candidate, jumped = round.with_affinity(up_view, up, up_jumped)
    local flow = candidate.of
    local cap = flow.place.cap
    local own = cap > 0 and pools.of_user(flow.user, cap)
    if not own or own.limit - own.held > 0 then
      local is_fresh = candidate.kind == KIND_FRESH
      -- a fresh job that needs the loaded model replaces the best choice: that one is counted
      if is_fresh then count(up_view, up, up_jumped) else count(view, candidate, jumped) end
      grant(view, flow, is_fresh and candidate == up, token)
      return true
    end
    if flow.parked then error('a parked flow was chosen: it is ranked in a queue that is not its own') end
    local reserved = hold.get()
    if reserved and reserved.job == flow.head.id then hold.set(false) end
    flows.park(flow)
    touched(view, flow.place.queue, flow.place.rank)
  end
end

-- Writes the changes of the claim.
function round.save()
  for _, view in ipairs(round.all or {}) do
    if view.credits ~= view.had then order.save_credits(view.service.name, view.credits) end
    if view.last_model then
      call('HSET', life .. 'last_models', view.service.name, write_loaded(view.last_model))
    end
  end
  rankings.save()
  pools.save()
  flows.save()
end
