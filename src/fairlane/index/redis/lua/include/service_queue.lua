--@include flows
-- The queue of one service: its lane queues, its users' accounts and its share credits.
local service_queue = {ensured = {}, coming = {}}

function service_queue.ensure(service)
  if service_queue.ensured[service] then return end
  if call('ZSCORE', life .. 'desks', service) == false then
    call('ZADD', life .. 'desks', next_number(), service)
  end
  service_queue.ensured[service] = true
end

-- All services with a queue, in the order of their creation.
function service_queue.all()
  return call('ZRANGE', life .. 'desks', 0, -1)
end

-- The lane queues of a service, each as {lane, band, rank, key}.
function service_queue.queues(service)
  local found = {}
  for _, key in ipairs(call('HKEYS', life .. 'queues:' .. service)) do
    local lane, band, rank = match(key, '^(.*)|(%d+)%.(%-?%d+)$')
    found[#found + 1] = {key = key, lane = lane, band = tonumber(band), rank = tonumber(rank)}
  end
  return found
end

-- Whether a claim would examine this place.
function service_queue.has(place)
  return call('ZSCORE', life .. 'desks', place.service)
    and call('HEXISTS', life .. 'queues:' .. place.service, place.queue) == 1
end

local function lift(account, book)
  local virtual = accounts.virtual(book)
  if account.counter > virtual then return end
  account.counter = virtual + 1
  accounts.move_virtual(book, virtual + 1)
end

local function lined_up(flow, coming)
  local account = flows.add(flow, coming) and flows.account(flow)
  if account then
    if account.lines <= 0 then lift(account, flow.place.book) end
    account.lines, account.changed = account.lines + 1, true
  end
  flows.count(flow.place, #coming / 2)
end

-- The next service_queue.enter() queues this job.
function service_queue.comes(id, score, owner)
  local flow = owner.flow
  if not flow then
    service_queue.ensure(owner.spec.service)
    flow = flows.of(owner)
    owner.flow = flow
  end
  local coming = flow.coming
  if coming then
    local n = #coming
    coming[n + 1], coming[n + 2] = score, id
  else
    flow.coming, service_queue.coming[#service_queue.coming + 1] = {score, id}, flow
  end
end

-- Queues the jobs that arrived, with the same result as one by one.
function service_queue.enter()
  for _, flow in ipairs(service_queue.coming) do
    if not flows.look(flow) then flows.want_account(flow) end
  end
  accounts.fetch()
  for _, flow in ipairs(service_queue.coming) do
    lined_up(flow, flow.coming)
    flow.coming = nil
  end
  service_queue.coming = {}
end

local function left(flow)
  flows.count(flow.place, -1)
  local account = not flow.head and flows.account(flow)
  if account then account.lines, account.changed = math.max(0, account.lines - 1), true end
end

-- Removes a waiting job from its flow.
function service_queue.remove(entry)
  local flow = flows.of(entry)
  if flows.remove(flow, entry) then left(flow) end
end

-- The book of accounts that are charged for jobs of this spec.
function service_queue.book(spec)
  if not spec.book then spec.book = accounts.book(spec.service, spec.rank) end
  return spec.book
end

local function charge(account, cost)
  local refund = account.refund
  local used = refund < cost and refund or cost
  account.counter, account.refund = account.counter + cost - used, refund - used
end

-- The account that is charged for this job of the flow, and its book; nil if the service is not fair.
local function payer(flow, entry)
  local place = flow.place
  if place.fair then return flow.account or flows.account(flow), place.book end
  if not service_named(place.service).fair then return nil end
  local book = service_queue.book(entry.spec)
  return accounts.get(book, entry.user), book
end

-- Hands out the first job of the flow: it leaves the flow, its user is charged and the user's ageing clock
-- restarts. If the job was served in fair order, the tier's virtual time advances to the user's counter.
function service_queue.start(flow, entry, in_turn, now)
  flows.advance(flow)
  local account, book = payer(flow, entry)
  if account then
    if in_turn and account.counter > accounts.virtual(book) then
      accounts.move_virtual(book, account.counter)
    end
    if entry.spec.band ~= SKIP then charge(account, entry.cost) end
    accounts.started(account, entry.id, now)
    account.running = account.running + 1
  end
  left(flow)
end

-- A job that was handed out has ended. Without `actual` its cost is unknown.
function service_queue.ended(spec, user, cost, actual)
  service_queue.ensure(spec.service)
  local account = accounts.find(service_queue.book(spec), user)
  if not account then return end
  local running = account.running
  account.running, account.changed = running > 0 and running - 1 or 0, true
  if actual and spec.band ~= SKIP then
    if actual >= cost then
      account.counter = account.counter + actual - cost
    else
      account.refund = account.refund + cost - actual
    end
  end
end

-- Restores a running job from the ledger.
function service_queue.resume(entry)
  service_queue.ensure(entry.spec.service)
  if service_named(entry.spec.service).fair then
    local account = accounts.get(service_queue.book(entry.spec), entry.user)
    account.running, account.changed = account.running + 1, true
  end
end
