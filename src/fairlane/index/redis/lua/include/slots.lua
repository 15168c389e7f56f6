--@include pools
-- The slots of tokens, and their release.
local slots = {}
local NO_SLOTS = {}

local function of_token(token)
  local packed = call('HGET', life .. 'tokens', token)
  return packed and cmsgpack.unpack(packed) or {}
end

local function note(token, has)
  if #has > 0 then
    call('HSET', life .. 'tokens', token, cmsgpack.pack(has))
  else
    call('HDEL', life .. 'tokens', token)
  end
end

-- Records a slot that this token holds according to the ledger.
function slots.record(slot, token)
  local name, n, ends = slot[1], slot[2], slot[3]
  local pool = pools.get(name)
  if not pool then
    if not is_temporary(name) then return end
    pool = pools.make(name, n, 0)
  end
  pool.held = pool.held + call('HSET', life .. 'slots:' .. name, n, token)
  if ends > 0 then pools.note_end(pool, n, ends, token) end
  local has = of_token(token)
  has[#has + 1] = {name, n, ends}
  note(token, has)
end

-- Frees one slot that has no row in the ledger.
function slots.forget(name, n, token)
  pools.give_back(name, {n, token})
  local left = {}
  for _, slot in ipairs(of_token(token)) do
    if slot[1] ~= name or slot[2] ~= n then left[#left + 1] = slot end
  end
  note(token, left)
end

-- Returns the kept slots of a token, which stay until they expire. Adds the slots to free to `given`, by
-- pool. Rate slots are not freed, they expire, unless the proposal was refused.
local function split_slots(token, has, kept, refused, given, users)
  local keep, stays = kept and {}, {}
  for _, slot in ipairs(kept or NO_SLOTS) do keep[slot[1] .. '|' .. slot[2]] = slot end
  for _, slot in ipairs(has) do
    local name, n = slot[1], slot[2]
    local keeps = keep and keep[name .. '|' .. n]
    if keeps then
      stays[#stays + 1] = keeps
      local pool = slot[3] == 0 and keeps[3] > 0 and pools.get(name)
      if pool then pools.note_end(pool, n, keeps[3], token) end
    elseif refused or not is_rate_pool(name) then
      local list = given[name] or {}
      given[name] = list
      list[#list + 1], list[#list + 2] = n, token
      if is_user_pool(name) then users[#users + 1] = sub(name, 6) end
    end
  end
  return stays
end

-- Frees the slots of these tokens except the kept ones. Returns the users that may start one more job.
function slots.release(tokens, kept, refused)
  local held_by, given, users, nothing = {}, {}, {}, {}
  for i, packed in ipairs(values_of(life .. 'tokens', tokens)) do
    if packed then
      local token = tokens[i]
      local has = held_by[token] or cmsgpack.unpack(packed)
      held_by[token] = split_slots(token, has, kept[i], refused, given, users)
    end
  end
  for name, list in pairs(given) do pools.give_back(name, list) end
  for token, stays in pairs(held_by) do
    if #stays > 0 then note(token, stays) else nothing[#nothing + 1] = token end
  end
  with_all('HDEL', life .. 'tokens', nothing)
  return users
end
