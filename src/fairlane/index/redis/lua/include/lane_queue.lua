--@include ranking
--@include order
-- Lane queues: the candidates of one queue for the next claim.
local queues = {}
local KINDS = {[SKIP] = KIND_SKIP, [FRONT] = KIND_FRONT}

local function candidate(queue, flow, at_level, at_order, kind)
  return {
    level = at_level, order = at_order, score = flow.head.score, since = flows.since(flow),
    flow = flow.name, rank = queue.rank, kind = kind, of = flow,
  }
end

local function fair_ranking(queue)
  if not queue.fair then queue.fair = rankings.get(life .. 'fair:' .. queue.key, flows.order) end
  return queue.fair
end

-- The first flow in fair order as a candidate, or nil.
function queues.first(queue)
  local flow, at_order = rankings.first(fair_ranking(queue))
  if not flow then return nil end
  local kind = KINDS[queue.band]
  if kind then
    -- front retries that may run in several regions go before those of one region
    local bound = queue.band == FRONT and #read_lane(queue.lane).regions == 1
    return candidate(queue, flow, bound and 1 or 0, at_order, kind)
  end
  return candidate(queue, flow, queue.rank, at_order, KIND_FRESH)
end

-- The ranking by age. In a queue without accounts it is the fair ranking.
local function age_ranking(queue)
  if not queue.by_user then return fair_ranking(queue) end
  if not queue.aged then queue.aged = rankings.get(life .. 'aged:' .. queue.key, flows.since) end
  return queue.aged
end

-- Whether a job may have aged: the first score of the ranking is a lower bound for all start times.
local function may_have_aged(queue, now)
  if queue.may_age == nil then
    local patience, steps = tiers().patience[queue.rank + 1], tiers().thresholds[queue.rank + 1]
    local soonest = steps[1] and math.min(patience, steps[1][2]) or patience
    local key = life .. (queue.by_user and 'aged:' or 'fair:') .. queue.key
    local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
    queue.may_age = patience > 0 and first ~= nil and now - tonumber(first) >= soonest
  end
  return queue.may_age
end

local function warm_ranking(queue, model)
  return rankings.get(life .. 'warm:' .. queue.key .. '|' .. model, flows.order)
end

-- Ranks a flow that was not ranked, in this script only. Requires that queues.wanted() was read.
function queues.join(queue, flow)
  flows.want_account(flow)
  accounts.fetch()
  rankings.add(fair_ranking(queue), flow)
  if queue.by_user and queue.band == TIER then rankings.add(age_ranking(queue), flow) end
  local model = flow.place.model
  if model ~= '' then
    rankings.add(warm_ranking(queue, model), flow)
    local known = wanted.known[queue.key]
    known[model], flow.ranked = (known[model] or 0) + 1, flow.head
  end
  queue.may_age = tiers().patience[queue.rank + 1] ~= nil and tiers().patience[queue.rank + 1] > 0
end

-- The first flow by age as a candidate if its first job has aged, else nil.
function queues.aged(queue, now)
  if queue.band ~= TIER or not may_have_aged(queue, now) then return nil end
  local flow, since = rankings.first(age_ranking(queue))
  if not flow then return nil end
  local reached = level(queue.rank, now - since)
  if reached == queue.rank and now - since < tiers().patience[queue.rank + 1] then return nil end
  return candidate(queue, flow, reached, since, KIND_AGED)
end

-- The first flow in fair order that needs this model.
function queues.warm(queue, model)
  local flow, at_order = rankings.first(warm_ranking(queue, model))
  return flow and candidate(queue, flow, queue.rank, at_order, KINDS[queue.band] or KIND_FRESH)
end

-- The number of flows that need each model, without flows that were emptied or parked in this script. Of
-- more models than are compared, only some are included.
function queues.wanted(queue)
  if wanted.known[queue.key] then return wanted.known[queue.key] end
  local found = pairs_of(
    call('ZRANGE', life .. 'wanted:' .. queue.key, 0, 2 * MAX_COMPARED_MODELS, 'WITHSCORES'))
  for model, n in pairs(found) do found[model] = tonumber(n) end
  for _, flow in ipairs(flows.touched) do
    local model = flow.place.model
    if found[model] and flow.place.queue == queue.key and flow.ranked and (flow.parked or not flow.head) then
      found[model] = found[model] > 1 and found[model] - 1 or nil
    end
  end
  wanted.known[queue.key] = found
  return found
end
