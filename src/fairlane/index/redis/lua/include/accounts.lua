--@include keys
-- Accounts: the fair-share counter and the ageing clock of one user in one service and tier. A book holds
-- the accounts of one service and tier. Accounts are read once and written by accounts.save().
local accounts = {books = {}, wanted = {}}
local ACCOUNT = '<ddddi4i4' -- followed by the id of the job that started last

function accounts.book(service, rank)
  local name = service .. '|' .. rank
  local book = accounts.books[name]
  if not book then
    book = {key = life .. 'accounts:' .. service, service = service, rank = rank, users = {}}
    book.virtual_key, book.begins = life .. 'virtual:' .. service, rank .. '|'
    accounts.books[name] = book
  end
  return book
end

function accounts.unpacked(packed)
  local counter, refund, at, other_at, lines, running, next_at = struct.unpack(ACCOUNT, packed)
  return {
    counter = sound(counter), refund = sound(refund), at = sound(at), other_at = sound(other_at),
    lines = lines, running = running, job = sub(packed, next_at),
  }
end

-- The next fetch() reads this user's account, together with all other requested ones.
function accounts.want(book, user)
  if book.users[user] ~= nil then return end
  local list = accounts.wanted[book]
  if not list then
    list = {}
    accounts.wanted[book] = list
  end
  list[#list + 1] = user
end

function accounts.fetch()
  for book, users in pairs(accounts.wanted) do
    local fields = {}
    for i, user in ipairs(users) do fields[i] = book.begins .. user end
    for i, packed in ipairs(values_of(book.key, fields)) do
      book.users[users[i]] = packed and accounts.unpacked(packed)
    end
    accounts.wanted[book] = nil
  end
end

-- The account, or nil.
function accounts.find(book, user)
  local account = book.users[user]
  if account == nil then
    local packed = call('HGET', book.key, book.begins .. user)
    account = packed and accounts.unpacked(packed)
    book.users[user] = account
  end
  return account or nil
end

-- The account, created if missing. It is written only if its `changed` is set.
function accounts.get(book, user)
  local account = accounts.find(book, user)
  if not account then
    account = {counter = 0, refund = 0, at = 0, job = '', other_at = 0, lines = 0, running = 0}
    book.users[user] = account
  end
  return account
end

-- The virtual time of this tier: the fair-share counter that service has reached.
function accounts.virtual(book)
  if not book.virtual then book.virtual = tonumber(call('HGET', book.virtual_key, book.rank) or 0) end
  return book.virtual
end

function accounts.move_virtual(book, to)
  book.virtual, book.virtual_changed = to, true
end

-- A job of this user has started: the ageing clock restarts for the user's other jobs.
function accounts.started(account, job, now)
  if job ~= account.job then account.other_at = account.at end
  account.at, account.job, account.changed = now, job, true
end

-- The time from which the first job of a flow ages.
function accounts.ages_from(account, head)
  local start = account.job == head.id and account.other_at or account.at
  return head.score > start and head.score or start
end

function accounts.forget(service)
  call('DEL', life .. 'accounts:' .. service, life .. 'virtual:' .. service)
  for name, book in pairs(accounts.books) do
    if book.service == service then accounts.books[name] = nil end
  end
end

function accounts.save()
  for _, book in pairs(accounts.books) do
    local list = later.list('HSET', book.key)
    for user, a in pairs(book.users) do
      if a and a.changed then
        a.changed = false
        list[#list + 1] = book.begins .. user
        list[#list + 1] = struct.pack(
          ACCOUNT, a.counter, a.refund, a.at, a.other_at, a.lines, a.running) .. a.job
      end
    end
    if book.virtual_changed then
      book.virtual_changed = false
      call('HSET', book.virtual_key, book.rank, whole(book.virtual))
    end
  end
end
