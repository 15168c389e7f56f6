--@include state
-- Users in one service and tier: the fair-share counter and the ageing clock. Read once, written
-- by accounts.save() at the end of the script.
local accounts = {known = {}}

local A_PAGE = 1000

local function note(service, field, packed)
  local account = packed and accounts.unpacked(packed) or false
  if account then account.service, account.field = service, field end
  accounts.known[service .. '|' .. field] = account
  return account
end

function accounts.find(service, rank, user)
  local field = rank .. '|' .. user
  local account = accounts.known[service .. '|' .. field]
  if account == nil then
    account = note(service, field, call('HGET', life .. 'accounts:' .. service, field))
  end
  return account or nil
end

-- Many at once.
function accounts.read(service, rank, users)
  local fields = {}
  for _, user in ipairs(users) do
    local field = rank .. '|' .. user
    if accounts.known[service .. '|' .. field] == nil then fields[#fields + 1] = field end
  end
  for from = 1, #fields, A_PAGE do
    local to = math.min(#fields, from + A_PAGE - 1)
    local found = call('HMGET', life .. 'accounts:' .. service, unpack(fields, from, to))
    for i, packed in ipairs(found) do note(service, fields[from + i - 1], packed) end
  end
end

function accounts.get(service, rank, user)
  local account = accounts.find(service, rank, user)
  if not account then
    account = {counter = 0, refund = 0, at = 0, job = '', other_at = 0, waiting = 0, running = 0}
    account.service, account.field = service, rank .. '|' .. user
    accounts.known[service .. '|' .. rank .. '|' .. user] = account
  end
  account.changed = true
  return account
end

function accounts.unpacked(packed)
  local v = cmsgpack.unpack(packed)
  return {
    counter = v[1], refund = v[2], at = v[3], job = v[4], other_at = v[5], waiting = v[6],
    running = v[7],
  }
end

-- A job of this user has started: the clock starts anew for all others.
function accounts.started(account, job, now)
  if job ~= account.job then account.other_at = account.at end
  account.at, account.job = now, job
end

-- Since when the head of a line ages.
function accounts.ages_from(account, score, job)
  local start = account.job == job and account.other_at or account.at
  return math.max(score, start)
end

function accounts.forget(service)
  call('DEL', life .. 'accounts:' .. service, life .. 'virtual:' .. service)
  for id, account in pairs(accounts.known) do
    if account and account.service == service then accounts.known[id] = nil end
  end
end

function accounts.save()
  for _, a in pairs(accounts.known) do
    if a and a.changed then
      local packed = cmsgpack.pack(
        {a.counter, a.refund, a.at, a.job, a.other_at, a.waiting, a.running})
      call('HSET', life .. 'accounts:' .. a.service, a.field, packed)
      a.changed = false
    end
  end
end
