--@include settings
--@include accounts
--@include entry
-- Flows: one user's line inside (lane, band, model). Without an account it is everybody's, oldest
-- first. A queue is what waits in one lane and band. It ranks its flows in sorted sets: their
-- members are (score of the head, name), exact at all times; their scores (counter, or since when
-- the head ages) are never above the truth and moved when they come to the top.
local flows = {known = {}}
local MIDDLE = 4503599627370496 -- 2^52: makes every score a number of 16 digits

local function new_flow(name, lane, band, rank, cap, model, user)
  local service = service_named(match(lane, '^[^|]*'))
  return {
    name = name, lane = lane, band = band, rank = rank, cap = cap, model = model, user = user,
    service = service.name, fair = service.fair and band == TIER,
    queue = lane .. '|' .. band .. '.' .. rank, line = life .. 'line:' .. name,
  }
end

function flows.of(entry)
  local service = service_named(entry.service)
  local tier = entry.band == TIER
  local user = ((service.fair and tier) or entry.cap > 0) and entry.user or ''
  local model = service.keeps_models and entry.model or ''
  local rank = tier and entry.rank or -1
  local place = entry.band .. '.' .. rank .. '.' .. whole(entry.cap)
  local name = entry.lane .. '|' .. place .. '|' .. model .. '|' .. user
  local flow = flows.known[name]
  if not flow then
    flow = new_flow(name, entry.lane, entry.band, rank, entry.cap, model, user)
    flows.known[name] = flow
  end
  return flow
end

function flows.named(name)
  local flow = flows.known[name]
  if not flow then
    local lane, band, rank, cap, model, user =
      match(name, '^([^|]*|[^|]*|[^|]*)|(%d+)%.(%-?%d+)%.(%d+)|([^|]*)|(.*)$')
    flow = new_flow(name, lane, tonumber(band), tonumber(rank), tonumber(cap), model, user)
    flows.known[name] = flow
  end
  return flow
end

-- (score, job) of who is first, or nil.
function flows.head(flow)
  local first = call('ZRANGE', flow.line, 0, 0, 'WITHSCORES')
  if not first[1] then return nil end
  return {score = tonumber(first[2]), id = first[1]}
end

function flows.account(flow)
  return flow.fair and accounts.get(flow.service, flow.rank, flow.user) or nil
end

-- Its place among the flows of a tier: its user's counter, or its head's score.
function flows.order(flow, head)
  local account = flow.fair and accounts.find(flow.service, flow.rank, flow.user)
  return account and account.counter or head.score
end

-- When its head began to age.
function flows.since(flow, head)
  local account = flow.fair and accounts.find(flow.service, flow.rank, flow.user)
  return account and accounts.ages_from(account, head.score, head.id) or head.score
end

local function member(flow, head)
  return whole(head.score + MIDDLE) .. flow.name
end

-- (name of the flow, score of its head) of a member.
function flows.of_member(text)
  return sub(text, 17), tonumber(sub(text, 1, 16)) - MIDDLE
end

function flows.rank(flow, head)
  local text, order = member(flow, head), whole(flows.order(flow, head))
  call('ZADD', life .. 'fair:' .. flow.queue, order, text)
  if flow.fair then
    call('ZADD', life .. 'aged:' .. flow.queue, whole(flows.since(flow, head)), text)
  end
  if flow.model ~= '' then
    call('ZADD', life .. 'warm:' .. flow.queue .. '|' .. flow.model, order, text)
  end
end

function flows.unrank(flow, head)
  local text = member(flow, head)
  call('ZREM', life .. 'fair:' .. flow.queue, text)
  if flow.fair then call('ZREM', life .. 'aged:' .. flow.queue, text) end
  if flow.model ~= '' then
    call('ZREM', life .. 'warm:' .. flow.queue .. '|' .. flow.model, text)
  end
end

-- The first flow of a ranking and its head, or nil.
function flows.first(key, measure)
  while true do
    local top = call('ZRANGE', key, 0, 0, 'WITHSCORES')
    if not top[1] then return nil end
    local flow = flows.named((flows.of_member(top[1])))
    local head = flows.head(flow)
    if not head then
      call('ZREM', key, top[1])
    else
      local present = measure(flow, head)
      if present == tonumber(top[2]) then return flow, head end
      call('ZADD', key, whole(present), top[1])
    end
  end
end

-- Every flow of a queue by name, parked ones too: {name, score of its head or false}.
function flows.all(queue)
  local found = {}
  for _, text in ipairs(call('ZRANGE', life .. 'fair:' .. queue, 0, -1)) do
    local name, score = flows.of_member(text)
    found[#found + 1] = {name, score}
  end
  for _, name in ipairs(call('SMEMBERS', life .. 'parked:' .. queue)) do
    found[#found + 1] = {name, false}
  end
  return found
end

-- --- parking: flows whose user has as many jobs running as allowed -------------------------------
function flows.is_parked(flow)
  return flow.cap > 0 and call('SISMEMBER', life .. 'parked:' .. flow.queue, flow.name) == 1
end

function flows.park(flow, head)
  flows.unrank(flow, head)
  call('SADD', life .. 'parked:' .. flow.queue, flow.name)
  call('SADD', life .. 'capped:' .. flow.user, flow.name)
end

function flows.forget_parked(flow)
  if flow.cap > 0 and call('SREM', life .. 'parked:' .. flow.queue, flow.name) == 1 then
    call('SREM', life .. 'capped:' .. flow.user, flow.name)
  end
end

function flows.unpark(user)
  for _, name in ipairs(call('SMEMBERS', life .. 'capped:' .. user)) do
    local flow = flows.named(name)
    flows.forget_parked(flow)
    local head = flows.head(flow)
    if head then flows.rank(flow, head) end
  end
end
