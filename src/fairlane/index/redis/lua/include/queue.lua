--@include ranking
--@include order
-- The candidates that one queue puts up.
local queues = {}
local KINDS = {[SKIP] = KIND_SKIP, [FRONT] = KIND_FRONT}

local function candidate(queue, flow, at_level, kind)
  return {
    level = at_level, order = flows.order(flow), score = flow.head.score, since = flows.since(flow),
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

-- {aged or nil, other or nil}
function queues.candidates(queue, now)
  queue.fair = queue.fair or rankings.get(life .. 'fair:' .. queue.key, flows.order)
  local flow = rankings.first(queue.fair)
  if not flow then return {} end
  local rank = queue.rank
  if queue.band ~= TIER then return {other = candidate(queue, flow, 0, KINDS[queue.band])} end
  local found = {other = candidate(queue, flow, rank, KIND_FRESH)}
  local patience = tiers().patience[rank + 1]
  if patience == 0 then return found end
  if flow.place.fair then
    if not may_have_aged(queue, now) then return found end
    queue.aged = queue.aged or rankings.get(life .. 'aged:' .. queue.key, flows.since)
    flow = rankings.first(queue.aged)
  end
  local since = flows.since(flow)
  local reached = level(rank, now - since)
  if reached < rank or now - since >= patience then
    found.aged = candidate(queue, flow, reached, KIND_AGED)
    found.aged.order = since
  end
  return found
end

-- The first in fair order of those that need this model.
function queues.warm(queue, model)
  local flow = rankings.first(
    rankings.get(life .. 'warm:' .. queue.key .. '|' .. model, flows.order))
  return flow and candidate(queue, flow, queue.rank, KINDS[queue.band] or KIND_FRESH)
end
