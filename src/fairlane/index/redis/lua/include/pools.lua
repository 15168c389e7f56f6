--@include state
-- Slot numbers: which places of a pool are taken, and by which token. Numbers up to a pool's mark
-- have been in use; those of them that are free stand in its free list. Above it all are free.
local pools = {known = {}}

local function is_user_pool(name) return sub(name, 1, 5) == 'user:' end
local function is_rate_pool(name) return sub(name, 1, 5) == 'rate:' end

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
  call('HSET', life .. 'limits', name, whole(limit) .. ' ' .. whole(window))
  local pool = {name = name, limit = limit, window = window}
  pool.held = call('HLEN', life .. 'slots:' .. name)
  pools.known[name] = pool
  return pool
end

function pools.delete(name)
  call('HDEL', life .. 'limits', name)
  call('HDEL', life .. 'marks', name)
  call('SREM', life .. 'ending', name)
  call('DEL', life .. 'slots:' .. name, life .. 'free:' .. name, life .. 'ends:' .. name)
  pools.known[name] = false
end

-- The limits as configured; per-user pools come and go with their users.
function pools.configure(wanted)
  local names = {}
  for _, each in ipairs(wanted) do names[each[1]] = true end
  for _, name in ipairs(call('HKEYS', life .. 'limits')) do
    if not is_user_pool(name) and not names[name] then pools.delete(name) end
  end
  for _, each in ipairs(wanted) do
    local known = pools.get(each[1])
    if known and known.window ~= each[3] then pools.delete(each[1]) end
    pools.make(each[1], each[2], each[3])
  end
end

-- The pool behind `max_running_per_user`.
function pools.of_user(user, cap)
  local pool = pools.get('user:' .. user)
  if not pool or pool.limit ~= cap then pool = pools.make('user:' .. user, cap, 0) end
  return pool
end

function pools.hold(pool, n, ends, token)
  pool.held = pool.held + call('HSET', life .. 'slots:' .. pool.name, whole(n), token)
  if ends > 0 then
    local member = whole(ends) .. '|' .. whole(n) .. '|' .. token
    call('ZADD', life .. 'ends:' .. pool.name, whole(ends), member)
    call('SADD', life .. 'ending', pool.name)
  end
end

-- The lowest free number. Only if there is a spare one.
function pools.take(pool, token, now)
  local free, slots = life .. 'free:' .. pool.name, life .. 'slots:' .. pool.name
  local n
  repeat
    local lowest = call('ZPOPMIN', free)[1]
    n = tonumber(lowest or call('HINCRBY', life .. 'marks', pool.name, 1))
  until call('HEXISTS', slots, whole(n)) == 0
  local ends = pool.window > 0 and now + pool.window or 0
  pools.hold(pool, n, ends, token)
  return {pool.name, n, ends}
end

-- Free the number if this token holds it.
function pools.give(pool, n, token)
  local slots = life .. 'slots:' .. pool.name
  if call('HGET', slots, whole(n)) ~= token then return false end
  call('HDEL', slots, whole(n))
  pool.held = pool.held - 1
  if n <= tonumber(call('HGET', life .. 'marks', pool.name) or 0) then
    call('ZADD', life .. 'free:' .. pool.name, whole(n), whole(n))
  end
  return true
end

function pools.give_back(name, n, token)
  local pool = pools.get(name)
  if not pool or not pools.give(pool, n, token) then return end
  if pool.held == 0 and is_user_pool(name) then pools.delete(name) end
end

-- Free what holds only for a time.
function pools.expire(pool, now)
  local ends = life .. 'ends:' .. pool.name
  local over = call('ZRANGEBYSCORE', ends, '-inf', whole(now))
  for _, member in ipairs(over) do
    local n, token = match(member, '^%d+|(%d+)|(.*)$')
    pools.give(pool, tonumber(n), token)
  end
  if #over > 0 then
    call('ZREMRANGEBYSCORE', ends, '-inf', whole(now))
    if call('EXISTS', ends) == 0 then call('SREM', life .. 'ending', pool.name) end
  end
end

-- When the next slot of any pool frees itself, or nil.
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

function pools.of_token(token)
  local packed = call('HGET', life .. 'tokens', token)
  return packed and cmsgpack.unpack(packed) or {}
end

function pools.note(token, slots)
  if #slots > 0 then
    call('HSET', life .. 'tokens', token, cmsgpack.pack(slots))
  else
    call('HDEL', life .. 'tokens', token)
  end
end

-- Believe the ledger: this slot is taken by this token.
function pools.believe(slot, token)
  local name, n, ends = slot[1], slot[2], slot[3]
  local pool = pools.get(name)
  if not pool then
    if not is_user_pool(name) then return end
    pool = pools.make(name, n, 0)
  end
  pools.hold(pool, n, ends, token)
  local slots = pools.of_token(token)
  slots[#slots + 1] = {name, n, ends}
  pools.note(token, slots)
end

-- One number that no ledger row stands behind.
function pools.disbelieve(name, n, token)
  pools.give_back(name, n, token)
  local left = {}
  for _, slot in ipairs(pools.of_token(token)) do
    if slot[1] ~= name or slot[2] ~= n then left[#left + 1] = slot end
  end
  pools.note(token, left)
end

-- Give back what the token holds. Rates run on by themselves unless the grant never was. The users
-- who may have one more running.
function pools.release(token, kept, refused)
  local keep, stays, users = {}, {}, {}
  for _, slot in ipairs(kept) do keep[slot[1] .. '|' .. whole(slot[2])] = true end
  local slots = pools.of_token(token)
  if #slots == 0 then return users end
  for _, slot in ipairs(slots) do
    if keep[slot[1] .. '|' .. whole(slot[2])] then
      stays[#stays + 1] = slot
    elseif refused or not is_rate_pool(slot[1]) then
      pools.give_back(slot[1], slot[2], token)
      if is_user_pool(slot[1]) then users[#users + 1] = sub(slot[1], 6) end
    end
  end
  pools.note(token, stays)
  return users
end
