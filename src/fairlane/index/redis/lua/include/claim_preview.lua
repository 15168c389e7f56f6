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

-- Ranks the parked flows of the queues, and those put off in this preview, again.
local function rejoin(view, put_off)
  local any = false
  for _, queue in ipairs(view.queues) do
    local back = put_off[queue.key] or {}
    for _, name in ipairs(call('SMEMBERS', life .. 'parked:' .. queue.key)) do
      back[#back + 1] = flows.named(name)
    end
    for _, flow in ipairs(back) do
      if flows.look(flow) then
        flow.parked, any = false, true
        queues.join(queue, flow)
      end
    end
    round.forget_heads(view, queue.key, queue.rank)
  end
  return any
end

-- The first EXACT_POSITIONS jobs in the order in which they would start; none after `last`, if it is one of
-- them. Jobs of users at their running limit come last. Each job is treated as ended before the next one is
-- chosen.
function preview.front(service, last, now)
  local view, put_off, limits_count = round.view(service, service_queue.queues(service.name)), {}, true
  local found = {}
  round.now, flows.asked = now, EXACT_POSITIONS
  flows.forget_parked = function(flow) flow.parked = false end
  while #found < EXACT_POSITIONS do
    local chosen, jumped = order.choose(round.heads(view), view.credits, service.shares)
    local flow = chosen and chosen.of
    if not flow then
      if not limits_count or not rejoin(view, put_off) then return found end
      limits_count = false
    elseif limits_count and preview.is_at_limit(flow) then
      local list = put_off[flow.place.queue] or {}
      put_off[flow.place.queue], list[#list + 1], flow.parked = list, flow, true
      round.forget_heads(view, flow.place.queue, flow.place.rank)
    else
      local entry = flows.known_head(flow)
      found[#found + 1] = entry.id
      if entry.id == last then return found end
      view.credits = order.granted(view.credits, chosen.kind, service.shares, jumped)
      service_queue.start(flow, entry, chosen.kind == KIND_FRESH, now)
      round.forget_heads(view, flow.place.queue, entry.spec.rank)
    end
  end
  return found
end

-- The job's position if it is one of the first EXACT_POSITIONS, else nil.
function preview.place_of(service, job, now)
  local found = preview.front(service, job, now)
  return found[#found] == job and #found or nil
end
