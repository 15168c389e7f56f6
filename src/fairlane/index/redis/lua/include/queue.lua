--@include flows
--@include order
-- The candidates that one queue puts up.
local queues = {}
local KINDS = {[SKIP] = KIND_SKIP, [FRONT] = KIND_FRONT}

local function candidate(queue, flow, head, at_level, kind)
  return {
    level = at_level, order = flows.order(flow, head), score = head.score,
    since = flows.since(flow, head), flow = flow.name, rank = queue.rank, kind = kind, head = head,
  }
end

-- {aged or nil, other or nil}
function queues.candidates(queue, now)
  local flow, head = flows.first(life .. 'fair:' .. queue.key, flows.order)
  if not flow then return {} end
  local rank = queue.rank
  if queue.band ~= TIER then return {other = candidate(queue, flow, head, 0, KINDS[queue.band])} end
  local found = {other = candidate(queue, flow, head, rank, KIND_FRESH)}
  local patience = tiers().patience[rank + 1]
  if patience == 0 then return found end
  if flow.fair then flow, head = flows.first(life .. 'aged:' .. queue.key, flows.since) end
  local since = flows.since(flow, head)
  local reached = level(rank, now - since)
  if reached < rank or now - since >= patience then
    found.aged = candidate(queue, flow, head, reached, KIND_AGED)
    found.aged.order = since
  end
  return found
end

-- The first in fair order of those that need this model.
function queues.warm(queue, model)
  local flow, head = flows.first(life .. 'warm:' .. queue.key .. '|' .. model, flows.order)
  if not flow then return nil end
  return candidate(queue, flow, head, queue.rank, KINDS[queue.band] or KIND_FRESH)
end
