--@include keys
-- Slot pools (concurrency and rate limits): which numbered slots are taken, and by which token. Numbers up
-- to a pool's mark have been used; the free ones among them are in its free list. Above it all are free.
local pools = {known = {}, taken_from = {}}
local NUMBERS_AHEAD = 32

local function is_user_pool(name) return sub(name, 1, 5) == 'user:' end
local function is_rate_pool(name) return sub(name, 1, 5) == 'rate:' end

-- Whether the pool is created and deleted with its jobs: pools of users, and of task types (services that
-- are not configured).
local function is_temporary(name)
  if is_user_pool(name) then return true end
  local service = match(name, '^svc:([^@]+)$') or match(name, '^rate:svc:([^@]+)$')
  return service and call('HEXISTS', prefix .. 'services', service) == 0
end

function pools.get(name)
  local pool = pools.known[name]
  if pool == nil then
    local text = call('HGET', life .. 'limits', name)
    pool = false
    if text then
      local limit, window = match(text, '^(%d+) (%d+)$')
      pool = {name = name, limit = tonumber(limit), window = tonumber(window)}
      pool.held = call('HLEN', life .. 'slots:' .. name)
    end
    pools.known[name] = pool
  end
  return pool or nil
end

function pools.make(name, limit, window)
  if pools.known[name] == false then pools.known[name] = nil end
  call('HSET', life .. 'limits', name, whole(limit) .. ' ' .. whole(window))
  local pool = pools.get(name)
  pool.limit, pool.window = limit, window
  return pool
end

function pools.delete(name)
  call('HDEL', life .. 'limits', name)
  call('HDEL', life .. 'marks', name)
  call('SREM', life .. 'ending', name)
  call('DEL', life .. 'slots:' .. name, life .. 'free:' .. name, life .. 'ends:' .. name, life .. 'slot_models:' .. name)
  pools.known[name] = false
end

-- Sets the configured pools.
function pools.configure(wanted)
  local names = {}
  for _, each in ipairs(wanted) do names[each[1]] = true end
  for _, name in ipairs(call('HKEYS', life .. 'limits')) do
    if not names[name] and not is_temporary(name) then pools.delete(name) end
  end
  for _, each in ipairs(wanted) do
    local known = pools.get(each[1])
    if known and known.window ~= each[3] then pools.delete(each[1]) end
    pools.make(each[1], each[2], each[3])
  end
end

-- The temporary pool of this name, created or changed to this limit.
function pools.made(name, limit, window)
  local pool = pools.get(name)
  if not pool or pool.limit ~= limit or pool.window ~= window then
    pool = pools.make(name, limit, window)
  end
  return pool
end

-- The pool behind `max_running_per_user`.
function pools.of_user(user, cap) return pools.made('user:' .. user, cap, 0) end

-- Records when this slot expires.
function pools.note_end(pool, n, ends, token)
  local list = later.list('ZADD', life .. 'ends:' .. pool.name)
  list[#list + 1], list[#list + 2] = ends, whole(ends) .. '|' .. whole(n) .. '|' .. token
  if #list == 2 then call('SADD', life .. 'ending', pool.name) end
end

-- --- taking -------------------------------------------------------------------------------------------
-- Reads more numbers that may be free: first those of the free list, then those above the mark.
local function look_for_numbers(pool)
  local n = pool.numbers and NUMBERS_AHEAD or 1
  pool.at, pool.numbers = 1, {}
  if not pool.saw_all then
    local from = pool.looked_at or 0
    pool.numbers = call('ZRANGE', life .. 'free:' .. pool.name, from, from + n - 1)
    pool.looked_at, pool.saw_all = from + #pool.numbers, #pool.numbers < n
  else
    if not pool.mark then pool.mark = tonumber(call('HGET', life .. 'marks', pool.name) or 0) end
    local from = pool.above or pool.mark
    for i = 1, n do pool.numbers[i] = from + i end
    pool.above = from + n
  end
  pool.holders = values_of(life .. 'slots:' .. pool.name, pool.numbers)
end

local function next_number_of(pool)
  while true do
    if not pool.numbers or pool.at > #pool.numbers then
      look_for_numbers(pool)
    else
      local n, holder = tonumber(pool.numbers[pool.at]), pool.holders[pool.at]
      pool.at, pool.seen[#pool.seen + 1] = pool.at + 1, n
      if not holder and not (pool.busy and pool.busy[n]) then return n end
    end
  end
end

-- Takes the chosen free slot, or the lowest one (nil). Requires a spare slot. Written by pools.save().
function pools.take(pool, token, now, chosen)
  if not pool.taken then
    pool.taken, pool.seen = later.list('HSET', life .. 'slots:' .. pool.name), {}
    pools.taken_from[pool] = true
  end
  local n, taken = chosen or next_number_of(pool), pool.taken
  if chosen then
    pool.chosen = pool.chosen or {}
    pool.chosen[#pool.chosen + 1] = n
  end
  if pool.busy then pool.busy[n] = true end
  local ends = pool.window > 0 and now + pool.window or 0
  taken[#taken + 1], taken[#taken + 2] = n, token
  pool.held = pool.held + 1
  if ends > 0 then pools.note_end(pool, n, ends, token) end
  return {pool.name, n, ends}
end

-- A chosen number above the mark is the lowest free one: a number between them is taken, and is listed as
-- free when it is given back.
local function save_chosen(pool, free)
  local highest = 0
  for _, n in ipairs(pool.chosen) do
    highest, free[#free + 1] = math.max(highest, n), n
  end
  if highest > tonumber(call('HGET', life .. 'marks', pool.name) or 0) then
    call('HSET', life .. 'marks', pool.name, highest)
  end
end

function pools.save()
  for pool in pairs(pools.taken_from) do
    local free = later.list('ZREM', life .. 'free:' .. pool.name)
    for _, n in ipairs(pool.seen) do free[#free + 1] = n end
    local highest = pool.seen[#pool.seen]
    if pool.mark and highest > pool.mark then
      call('HSET', life .. 'marks', pool.name, highest)
    end
    if pool.chosen then save_chosen(pool, free) end
    pool.taken, pool.numbers, pool.mark, pool.above = nil, nil, nil, nil
    pool.looked_at, pool.saw_all, pool.chosen, pool.models, pool.busy = nil, nil, nil, nil, nil
  end
  pools.taken_from = {}
end

-- --- giving back --------------------------------------------------------------------------------------
-- Frees these slots, a flat list of n, token, if the tokens hold them.
local function give(pool, given)
  local key, numbers, free = life .. 'slots:' .. pool.name, {}, {}
  for i = 1, #given, 2 do numbers[#numbers + 1] = given[i] end
  for i, holder in ipairs(values_of(key, numbers)) do
    if holder and holder == given[2 * i] then free[#free + 1] = numbers[i] end
  end
  if #free == 0 then return end
  pool.models, pool.busy = nil, nil
  local mark, listed = tonumber(call('HGET', life .. 'marks', pool.name) or 0), {}
  for _, n in ipairs(free) do
    if n <= mark then listed[#listed + 1], listed[#listed + 2] = n, n end
  end
  pool.held = pool.held - with_all('HDEL', key, free)
  with_all('ZADD', life .. 'free:' .. pool.name, listed)
end

function pools.give_back(name, given)
  local pool = pools.get(name)
  if not pool then return end
  give(pool, given)
  if pool.held == 0 and is_temporary(name) then pools.delete(name) end
end

-- Frees the expired slots.
function pools.expire(pool, now)
  local ends, given = life .. 'ends:' .. pool.name, {}
  for _, member in ipairs(call('ZRANGEBYSCORE', ends, '-inf', now)) do
    local n, token = match(member, '^%d+|(%d+)|(.*)$')
    given[#given + 1], given[#given + 2] = tonumber(n), token
  end
  if #given > 0 then
    give(pool, given)
    call('ZREMRANGEBYSCORE', ends, '-inf', now)
    if call('EXISTS', ends) == 0 then call('SREM', life .. 'ending', pool.name) end
  end
end

-- The number of slots that expire, and the first expiry time.
function pools.kept(pool)
  local n, first, numbers, members = 0, nil, {}, {}
  for _, member in ipairs(call('ZRANGE', life .. 'ends:' .. pool.name, 0, -1)) do
    local ends, number, token = match(member, '^(%d+)|(%d+)|(.*)$')
    numbers[#numbers + 1], members[#members + 1] = number, {tonumber(ends), token}
  end
  for i, holder in ipairs(values_of(life .. 'slots:' .. pool.name, numbers)) do
    if holder == members[i][2] then n, first = n + 1, first or members[i][1] end
  end
  return n, first
end

-- The next expiry time of a slot in any pool, or nil.
function pools.next_end(now)
  local soonest
  for _, name in ipairs(call('SMEMBERS', life .. 'ending')) do
    local pool = pools.get(name)
    if pool then
      pools.expire(pool, now)
      local first = call('ZRANGE', life .. 'ends:' .. name, 0, 0, 'WITHSCORES')[2]
      if first and (not soonest or tonumber(first) < soonest) then soonest = tonumber(first) end
    end
  end
  return soonest
end

-- Deletes the temporary pools of this service. Returns false if one still has held slots.
function pools.forgets(service, now)
  for _, name in ipairs({'svc:' .. service, 'rate:svc:' .. service}) do
    local pool = is_temporary(name) and pools.get(name)
    if pool then
      pools.expire(pool, now)
      if pool.held > 0 then return false end
      pools.delete(name)
    end
  end
  return true
end

-- Encodes the slots of a token.
function pools.packed(slots)
  return #slots > 0 and cmsgpack.pack(slots) or ''
end
