--@include ranking
--@include order
-- The candidates that one queue puts up.
local queues = {}
local KINDS = {[SKIP] = KIND_SKIP, [FRONT] = KIND_FRONT}

local function candidate(queue, flow, at_level, at_order, kind)
  return {
    level = at_level, order = at_order, score = flow.head.score, since = flows.since(flow),
    flow = flow.name, rank = queue.rank, kind = kind, of = flow,
  }
end

-- Whether somebody may have aged: who came to a ranking has not been there longer than it says.
local function may_have_aged(queue, now)
  if queue.may_age == nil then
    local patience, steps = tiers().patience[queue.rank + 1], tiers().thresholds[queue.rank + 1]
    local soonest = steps[1] and math.min(patience, steps[1][2]) or patience
    local first = call('ZRANGE', life .. 'aged:' .. queue.key, 0, 0, 'WITHSCORES')[2]
    queue.may_age = first ~= nil and now - tonumber(first) >= soonest
  end
  return queue.may_age
end

-- The other one and the aged one, each a candidate or nil.
function queues.candidates(queue, now)
  queue.fair = queue.fair or rankings.get(life .. 'fair:' .. queue.key, flows.order)
  local flow, at_order = rankings.first(queue.fair)
  if not flow then return nil end
  local rank = queue.rank
  if queue.band ~= TIER then return candidate(queue, flow, 0, at_order, KINDS[queue.band]) end
  local fresh = candidate(queue, flow, rank, at_order, KIND_FRESH)
  local patience = tiers().patience[rank + 1]
  if patience == 0 or queue.may_age == false then return fresh end
  if flow.place.fair then
    if not may_have_aged(queue, now) then return fresh end
    queue.aged = queue.aged or rankings.get(life .. 'aged:' .. queue.key, flows.since)
    flow = rankings.first(queue.aged)
  end
  local since = flows.since(flow)
  local reached = level(rank, now - since)
  if reached == rank and now - since < patience then return fresh end
  return fresh, candidate(queue, flow, reached, since, KIND_AGED)
end

-- The first in fair order of those that need this model.
function queues.warm(queue, model)
  local flow, at_order = rankings.first(
    rankings.get(life .. 'warm:' .. queue.key .. '|' .. model, flows.order))
  return flow and candidate(queue, flow, queue.rank, at_order, KINDS[queue.band] or KIND_FRESH)
end
