--@include queue
--@include affinity
--@include held
--@include waiting
--@include pools
--@include gates
--@include idle
-- One claim: the next jobs for one worker. The candidates of every service are kept between picks
-- and looked at again only where a pick has touched them.
local round = {}
local HOLD_AFTER, HOLD_FOR = 4, 30000000
local NO_SLOTS = {}

local function admits(service, region, now)
  if service.paused then return false end
  return not round.is_gated or gates.admits(service.name, region, now)
end

function round.begin(worker, loaded, most, now)
  round.worker, round.loaded, round.now, round.views, round.all = worker, loaded, now, {}, {}
  round.granted, round.is_gated = {}, gates.any() -- granted: id, text, slots in turn
  round.gone, round.number = later.list('HDEL', life .. 'jobs'), next_number(most) - most
  for _, name in ipairs(desk.all()) do
    local service = service_named(name)
    if admits(service, worker.region, now) then
      local served = {}
      for _, queue in ipairs(desk.queues(name)) do
        queue.by_user = service.fair and queue.band == TIER
        if serves(worker, queue) then served[#served + 1] = queue end
      end
      if #served > 0 then
        table.sort(served, function(a, b) return a.rank < b.rank end)
        local view = {service = service, queues = served, pools = {}, firsts = {}, aged = {}}
        view.credits = order.credits(name)
        view.had = view.credits
        for _, pool_name in ipairs(pool_names(service, worker.region)) do
          local pool = pools.get(pool_name)
          if pool then
            pools.expire(pool, now)
            view.pools[#view.pools + 1] = pool
          end
        end
        round.views[#round.views + 1], round.all[#round.all + 1] = view, view
      end
    end
  end
end

local function has_room(view, reserved)
  local used = view.pools
  for i = 1, #used do
    local kept = reserved and hold.covers(reserved, used[i].name) and 1 or 0
    if used[i].limit - used[i].held <= kept then return false end
  end
  return true
end

local function put_up(found, candidate)
  local known = found[candidate.kind]
  if not known or order.less(candidate, known) then found[candidate.kind] = candidate end
end

-- The best candidate of each kind. Queues stand with the best tier first, so that of a worse tier than
-- the best fresh candidate's only the aged are looked at.
local function heads_of(view)
  if view.heads then return view.heads end
  local found, firsts, aged, served = {}, view.firsts, view.aged, view.queues
  for i = 1, #served do
    local queue, fresh = served[i], found[KIND_FRESH]
    if not fresh or queue.rank <= fresh.level then
      if firsts[i] == nil then firsts[i] = queues.first(queue) or false end
      if firsts[i] then put_up(found, firsts[i]) end
    end
    if aged[i] == nil then aged[i] = queues.aged(queue, round.now) or false end
    if aged[i] then put_up(found, aged[i]) end
  end
  view.heads = found
  return found
end

-- --- reserving the last slot -----------------------------------------------------------------------
local function is_held_for(view, reserved)
  if not reserved or not has_room(view, nil) then return false end
  local aged = heads_of(view)[KIND_AGED]
  return aged ~= nil and aged.of.head.id == reserved.job
end

local function consider_hold(view)
  local aged = heads_of(view)[KIND_AGED]
  if not aged then return end
  if round.now - aged.since < HOLD_AFTER * tiers().patience[aged.rank + 1] then return end
  local reserved = hold.current(round.now)
  if not reserved or aged.since < reserved.since or aged.of.head.id == reserved.job then
    local names = {}
    for _, pool in ipairs(view.pools) do names[#names + 1] = pool.name end
    hold.set({since = aged.since, job = aged.of.head.id, names = names, ends = round.now + HOLD_FOR})
  end
end

-- --- choosing ----------------------------------------------------------------------------------------
local function best_choice()
  local best
  local reserved = hold.current(round.now)
  for _, view in ipairs(round.views) do
    if not has_room(view, reserved) and not is_held_for(view, reserved) then
      consider_hold(view)
      reserved = hold.current(round.now)
    else
      local chosen, jumped = order.choose(heads_of(view), view.credits, view.service.shares)
      if chosen and (not best or order.service_goes_first(chosen, best.candidate)) then
        best = {view = view, candidate = chosen, jumped = jumped}
      end
    end
  end
  return best
end

local function best_warm(model)
  local best
  local reserved = hold.current(round.now)
  for _, view in ipairs(round.views) do
    if view.service.keeps_models and has_room(view, reserved) then
      for _, queue in ipairs(view.queues) do
        local found = queues.warm(queue, model)
        if found and (not best or order.less(found, best.candidate)) and
          order.may_jump(found.kind, view.credits, view.service.shares) then
          best = {view = view, candidate = found, jumped = found.kind ~= KIND_FRESH}
        end
      end
    end
  end
  return best
end

-- The entry of who is first in this flow.
local function head_entry(flow)
  local head = flow.head
  if not head.entry then
    head.entry = read_entry(head.id, head.text or call('HGET', life .. 'jobs', head.id))
  end
  return head.entry
end

local function with_affinity(best)
  local model, service, up = round.loaded.model, best.view.service, best.candidate
  if model == '' or up.kind == KIND_SKIP or not service.keeps_models then return best end
  local entry = head_entry(up.of)
  if entry.spec.model == model then return best end
  local warm = best_warm(model)
  if not warm then return best end
  local pick = {
    rank = entry.spec.rank, patience = tiers().patience[entry.spec.rank + 1], age = round.now - up.since,
    load = load_time(service.name, entry.spec.model), service_time = entry.cost,
    single_slot = service.limit == 1,
  }
  if stays(service, round.loaded, pick, warm.candidate.rank, round.now) then return warm end
  return best
end

-- --- handing out -------------------------------------------------------------------------------------
-- A user's counter and clock are shared by all lanes of a service and tier.
local function touched(view, queue_key, rank)
  view.heads = nil
  local served = view.queues
  for i = 1, #served do
    if served[i].rank == rank or served[i].key == queue_key then
      view.firsts[i], view.aged[i] = nil, nil
    end
  end
  if round.is_gated and not admits(view.service, round.worker.region, round.now) then
    for i, each in ipairs(round.views) do
      if each == view then table.remove(round.views, i) break end
    end
  end
end

local function loaded_after(loaded, model, now)
  if model == '' then return loaded end
  if model == loaded.model then
    return {model = model, since = loaded.since, streak = loaded.streak + 1}
  end
  return {model = model, since = now, streak = 1}
end

local function take_slots(view, flow, token)
  local cap = flow.place.cap
  if cap == 0 and #view.pools == 0 then return NO_SLOTS end
  local slots = {}
  for _, pool in ipairs(view.pools) do slots[#slots + 1] = pools.take(pool, token, round.now) end
  if cap > 0 then
    slots[#slots + 1] = pools.take(pools.of_user(flow.user, cap), token, round.now)
  end
  return slots
end

local function grant(best, flow, token)
  local view, now, entry = best.view, round.now, head_entry(flow)
  local slots = take_slots(view, flow, token)
  local packed, gone = pools.packed(slots), round.gone
  if packed ~= '' then
    local list = later.list('HSET', life .. 'tokens')
    list[#list + 1], list[#list + 2] = token, packed
  end
  gone[#gone + 1] = entry.id
  view.credits = order.granted(view.credits, best.candidate.kind, view.service.shares, best.jumped)
  desk.start(flow, entry, best.candidate.kind == KIND_FRESH, now)
  round.number = round.number + 1
  held.file(token, entry, packed, now, round.number, now)
  if round.is_gated then gates.let_through(view.service.name, round.worker.region, token) end
  local reserved = hold.get()
  if reserved and reserved.job == entry.id then hold.set(false) end
  round.loaded = loaded_after(round.loaded, entry.spec.model, now)
  touched(view, flow.place.queue, entry.spec.rank)
  local granted = round.granted
  granted[#granted + 1], granted[#granted + 2], granted[#granted + 3] = entry.id, entry.text, slots
end

-- Hand out the best job there is now, under this token. Whether there was one.
function round.next(token)
  while true do
    local best = best_choice()
    if not best then return false end
    best = with_affinity(best)
    local flow = best.candidate.of
    local cap = flow.place.cap
    local own = cap > 0 and pools.of_user(flow.user, cap)
    if not own or own.limit - own.held > 0 then
      grant(best, flow, token)
      return true
    end
    local reserved = hold.get()
    if reserved and reserved.job == flow.head.id then hold.set(false) end
    flows.park(flow)
    touched(best.view, flow.place.queue, flow.place.rank)
  end
end

-- Write what was handed out.
function round.save()
  for _, view in ipairs(round.all) do
    if view.credits ~= view.had then order.save_credits(view.service.name, view.credits) end
  end
  rankings.save()
  pools.save()
  flows.save()
end
