--@include claim_round
-- The claim preview: simulates the next claims. It writes nothing: a claim changes only tables of the
-- script until round.save(), which is not called here. It must be the last step of a script.
local preview = {}

-- Whether the flow's user has as many jobs running as allowed.
function preview.is_at_limit(flow)
  local cap = flow.place.cap
  if cap == 0 then return false end
  local pool = pools.get('user:' .. flow.user)
  return pool ~= nil and pool.held >= cap
end

-- Ranks the parked flows of the service, and those put off in this preview, again.
local function rejoin(all, put_off)
  for _, queue in ipairs(all) do
    local back = put_off[queue.key] or {}
    for _, name in ipairs(call('SMEMBERS', life .. 'parked:' .. queue.key)) do
      back[#back + 1] = flows.named(name)
    end
    for _, flow in ipairs(back) do
      if flows.look(flow) then
        flow.parked = false
        queues.join(queue, flow)
      end
    end
  end
end

-- A copy of a pool of slots, with their models. Taken slots stay taken, unless all are: then any of them may
-- be the next to be free.
local function slots_copy(name)
  local pool = pools.get(name)
  if not pool then return nil end
  local copy = {name = name, limit = pool.limit, window = pool.window, held = pool.held}
  slot_models.read(copy)
  if copy.limit - copy.held <= 0 then copy.held, copy.busy, copy.is_full = 0, {}, true end
  return copy
end

-- Notes the model that a copied slot, or the worker, has from now on.
local function note_load(view, model, now)
  local pool = round.model_pool(view)
  local n = pool and slot_models.slot_for(pool, model)
  local had = pool and slot_models.get(pool, n) or round.loaded
  if view.service.keeps_models and model ~= had.model then
    local known = round.loads_of(view.service.name)
    known.at[#known.at + 1], known.model[#known.model + 1] = now, model
  end
  local has = loaded_after(had, model, now)
  if pool then pool.models[n] = has else round.loaded = has end
end

-- Adds a view of the service in one region (or nil) with copies of its slots. `copies` has those by name.
local function add_view(views, service, region, here, copies)
  local view = round.view(service, here)
  view.region, view.number = region, #views
  for _, name in ipairs(pool_names(service, region)) do
    if sub(name, 1, 4) == 'svc:' then
      if copies[name] == nil then copies[name] = slots_copy(name) or false end
      local copy = copies[name]
      if copy then
        view.pools[#view.pools + 1] = copy
        view.is_full = view.is_full or copy.is_full
        if region and name == 'svc:' .. service.name .. '@' .. region then view.region_pool = copy end
      end
    end
  end
  views[#views + 1] = view
end

-- The queues of each region that admits jobs now. With `all` those of every region, and those that no region
-- of the service allows.
local function views_of(service, served, copies, all, now)
  local views, seen = {}, {}
  local function is_open(region)
    return all or not service.paused and breakers.admits(service.name, region, now)
  end
  local function add(region, fits)
    local here = {}
    for _, queue in ipairs(served) do
      if fits(queue) then here[#here + 1], seen[queue.key] = queue, true end
    end
    if #here > 0 then add_view(views, service, region, here, copies) end
  end
  for _, each in ipairs(service.regions) do
    local region = each[1]
    if is_open(region) then add(region, function(queue) return allows(lane_of(queue.lane), region) end) end
  end
  if #service.regions == 0 then
    add(nil, function(queue)
      local regions = lane_of(queue.lane).regions
      local found = #regions == 0 and is_open(nil)
      for _, region in ipairs(regions) do found = found or is_open(region) end
      return found
    end)
  elseif all then
    add(nil, function(queue) return not seen[queue.key] end)
  end
  return views
end

-- The outstanding work of a region relative to its limit, as a claim counts it.
local function load_of(view, counts)
  local pool, bound = view.region_pool, 0
  if not pool then return 0 end
  for _, queue in ipairs(view.queues) do
    if is_bound(lane_of(queue.lane), view.region) then bound = bound + counts[queue.key] end
  end
  return (pool.held + bound) / pool.limit
end

-- Sorts the views like a claim, except that a region without a free slot comes after the others.
local function sort_by_load(views, counts)
  for _, view in ipairs(views) do view.load = load_of(view, counts) + (view.is_full and 1e9 or 0) end
  table.sort(views, function(a, b)
    if a.load ~= b.load then return a.load < b.load end
    return a.number < b.number
  end)
end

-- Like the choice of a claim, except that every slot counts as free and none is reserved.
local function best_choice(credits, counts)
  local best_view, best, best_jumped
  if #round.views > 1 then sort_by_load(round.views, counts) end
  for _, view in ipairs(round.views) do
    view.credits = credits
    local chosen, jumped = order.choose(round.heads(view), credits, view.service.shares)
    if chosen and (not best or order.service_goes_first(chosen, best)) then
      best_view, best, best_jumped = view, chosen, jumped
    end
  end
  return best_view, best, best_jumped
end

local function changed(queue_key, rank)
  for _, view in ipairs(round.views) do round.forget_heads(view, queue_key, rank) end
end

-- The queues of the service, and the number of waiting jobs in each.
local function begin(service, asked, now)
  local served, counts = service_queue.queues(service.name), {}
  round.now, flows.asked = now, asked
  round.loaded = read_loaded(call('HGET', life .. 'last_models', service.name))
  flows.forget_parked = function(flow) flow.parked = false end
  for _, queue in ipairs(served) do queues.wanted(queue) end
  if #service.regions > 1 then
    for key, n in pairs(pairs_of(call('HGETALL', life .. 'queues:' .. service.name))) do
      counts[key] = tonumber(n)
    end
  end
  return served, counts
end

-- The first `most` jobs in the order in which they would start; none after `last`, if it is one of them: for
-- each its entry, the kind of its share, the level it counts as, since when it ages, whether it goes first
-- because its model is loaded, how many jobs wait in its flow, and whether it is blocked. Blocked jobs come
-- last: first those that the service or their regions do not admit, then those of users at their running
-- limit. Each job is treated as ended, with an answer, before the next one is chosen.
function preview.front(service, most, last, now)
  local served, counts = begin(service, most, now)
  local found, put_off, copies, credits = {}, {}, {}, order.credits(service.name)
  local blocked, limits_count = false, true
  round.views = views_of(service, served, copies, false, now)
  while #found < most do
    local up_view, up, up_jumped = best_choice(credits, counts)
    if not up_view then
      if not limits_count then return found end
      if blocked then
        rejoin(served, put_off)
        limits_count = false
      end
      blocked, round.views = true, views_of(service, served, copies, true, now)
    else
      local view, chosen, jumped = round.with_affinity(up_view, up, up_jumped)
      local flow = chosen.of
      if limits_count and preview.is_at_limit(flow) then
        local list = put_off[flow.place.queue] or {}
        put_off[flow.place.queue], list[#list + 1], flow.parked = list, flow, true
        wanted.leaves(flow)
        changed(flow.place.queue, flow.place.rank)
      else
        local entry, fresh = flows.known_head(flow), chosen.kind == KIND_FRESH
        found[#found + 1] = {
          entry, chosen.kind, chosen.level, chosen.since, chosen ~= up, call('ZCARD', flow.line) - flow.popped,
          blocked,
        }
        if entry.id == last then return found end
        local counted, has_jumped = chosen, jumped
        if fresh then counted, has_jumped = up, up_jumped end
        credits = order.granted(credits, counted.kind, service.shares, has_jumped)
        if entry.spec.model ~= '' then note_load(view, entry.spec.model, now) end
        service_queue.start(flow, entry, fresh and chosen == up, now)
        local key = flow.place.queue
        if counts[key] then counts[key] = counts[key] - 1 end
        changed(key, entry.spec.rank)
      end
    end
  end
  return found
end

-- The job's position if it is one of the first EXACT_POSITIONS, else nil.
function preview.place_of(service, job, now)
  local found = preview.front(service, EXACT_POSITIONS, job, now)
  return #found > 0 and found[#found][1].id == job and #found or nil
end
