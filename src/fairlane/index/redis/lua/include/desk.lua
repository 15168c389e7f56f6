--@include flows
-- One service's desk: its queues, its users' accounts, its credits.
local desk = {}

function desk.ensure(service)
  if call('ZSCORE', life .. 'desks', service) == false then
    call('ZADD', life .. 'desks', next_number(), service)
  end
end

-- All services with a desk, in the order of their coming.
function desk.all()
  return call('ZRANGE', life .. 'desks', 0, -1)
end

-- The names of a service's queues, as {lane, band, rank, key}.
function desk.queues(service)
  local found = {}
  for _, key in ipairs(call('HKEYS', life .. 'queues:' .. service)) do
    local lane, band, rank = match(key, '^(.*)|(%d+)%.(%-?%d+)$')
    found[#found + 1] = {key = key, lane = lane, band = tonumber(band), rank = tonumber(rank)}
  end
  return found
end

local function lift(flow, account)
  local key = life .. 'virtual:' .. flow.service
  local virtual = tonumber(call('HGET', key, flow.rank) or 0)
  if account.counter > virtual then return end
  account.counter = virtual + 1
  call('HSET', key, flow.rank, whole(virtual + 1))
end

-- The job is in its line.
function desk.enter(entry)
  local flow = flows.of(entry)
  local account, head = flows.account(flow), flows.head(flow)
  if account then
    if not head and account.waiting == 0 then lift(flow, account) end
    account.waiting = account.waiting + 1
  end
  call('ZADD', flow.line, whole(entry.score), entry.id)
  local first = not head or entry.score < head.score
  if first or (entry.score == head.score and before(entry.id, head.id)) then
    if not flows.is_parked(flow) then
      if head then flows.unrank(flow, head) end
      flows.rank(flow, {score = entry.score, id = entry.id})
    end
  end
  call('HINCRBY', life .. 'queues:' .. flow.service, flow.queue, 1)
end

local function left(flow, is_empty)
  if is_empty then flows.forget_parked(flow) end
  local queues = life .. 'queues:' .. flow.service
  if call('HINCRBY', queues, flow.queue, -1) <= 0 then call('HDEL', queues, flow.queue) end
  local account = flows.account(flow)
  if account then account.waiting = account.waiting - 1 end
end

-- A waiting job is out of its line.
function desk.remove(entry)
  local flow = flows.of(entry)
  local head = flows.head(flow)
  if call('ZREM', flow.line, entry.id) == 0 then return end
  local next_head = head
  if head.id == entry.id then
    next_head = flows.head(flow)
    if not flows.is_parked(flow) then
      flows.unrank(flow, head)
      if next_head then flows.rank(flow, next_head) end
    end
  end
  left(flow, not next_head)
end

-- The flow's head is handed out: it leaves its line, its user is charged and the user's ageing
-- clock starts anew.
function desk.start(flow, head, entry, is_fresh, now)
  call('ZREM', flow.line, entry.id)
  flows.unrank(flow, head)
  if service_named(flow.service).fair then
    local account = accounts.get(flow.service, entry.rank, entry.user)
    if is_fresh then
      local key = life .. 'virtual:' .. flow.service
      if account.counter > tonumber(call('HGET', key, entry.rank) or 0) then
        call('HSET', key, entry.rank, whole(account.counter))
      end
    end
    if entry.band ~= SKIP then
      local used = math.min(account.refund, entry.cost)
      account.counter, account.refund = account.counter + entry.cost - used, account.refund - used
    end
    accounts.started(account, entry.id, now)
    account.running = account.running + 1
  end
  local next_head = flows.head(flow)
  if next_head then flows.rank(flow, next_head) end
  left(flow, not next_head)
end

-- A job that was handed out is no longer running; without `actual` its cost is unknown.
function desk.ended(entry, actual)
  desk.ensure(entry.service)
  if not accounts.find(entry.service, entry.rank, entry.user) then return end
  local account = accounts.get(entry.service, entry.rank, entry.user)
  account.running = math.max(0, account.running - 1)
  if actual and entry.band ~= SKIP then
    if actual >= entry.cost then
      account.counter = account.counter + actual - entry.cost
    else
      account.refund = account.refund + entry.cost - actual
    end
  end
end

-- A running job as the ledger remembers it.
function desk.resume(entry)
  desk.ensure(entry.service)
  if service_named(entry.service).fair then
    local account = accounts.get(entry.service, entry.rank, entry.user)
    account.running = account.running + 1
  end
end
