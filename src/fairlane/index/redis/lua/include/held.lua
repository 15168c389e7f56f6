--@include waiting
--@include pools
--@include gates
-- What was handed out, by token, and the reservation of last slots.
local held = {}

function held.get(token)
  local packed = call('HGET', life .. 'held', token)
  if not packed then return nil end
  local v = cmsgpack.unpack(packed)
  return {id = v[1], text = v[2], slots = v[3], at = v[4], number = v[5]}
end

function held.file(token, id, text, slots, at, rev)
  local known = held.get(token)
  local number = known and known.number or next_number()
  call('HSET', life .. 'held', token, cmsgpack.pack({id, text, slots, at, number}))
  call('HSET', life .. 'held_revs', id, whole(rev))
  if call('SISMEMBER', life .. 'verified', token) == 0 then
    call('ZADD', life .. 'seen', whole(at), token)
  end
end

-- The lease, or what was proposed as one, is over.
function held.let_go(token, actual, kept, refused)
  for _, user in ipairs(pools.release(token, kept, refused)) do flows.unpark(user) end
  if gates.any() then gates.forget_probe(token) end
  if state.loading then call('SADD', life .. 'freed', token) end
  local was = held.get(token)
  call('SREM', life .. 'verified', token)
  call('ZREM', life .. 'seen', token)
  if not was then return end
  call('HDEL', life .. 'held', token)
  local entry = read_entry(was.id, was.text)
  if tonumber(call('HGET', life .. 'held_revs', entry.id) or -1) == entry.rev then
    call('HDEL', life .. 'held_revs', entry.id)
  end
  if refused then actual = 0 end
  desk.ended(entry, actual)
end

-- --- the reservation: {since, job, pools, until} ---------------------------------------------------
local hold = {}

function hold.set(value)
  hold.known = value
  if value then
    call('SET', life .. 'hold',
      cmsgpack.pack({value.since, value.job, value.names, value.ends}))
  else
    call('DEL', life .. 'hold')
  end
end

function hold.get()
  if hold.known == nil then
    local packed = call('GET', life .. 'hold')
    local v = packed and cmsgpack.unpack(packed)
    hold.known = v and {since = v[1], job = v[2], names = v[3], ends = v[4]} or false
  end
  return hold.known or nil
end

function hold.current(now)
  local known = hold.get()
  if known and (known.ends <= now or call('HEXISTS', life .. 'jobs', known.job) == 0) then
    hold.set(false)
  end
  return hold.known or nil
end

function hold.covers(value, pool)
  if not value then return false end
  for _, name in ipairs(value.names) do
    if name == pool then return true end
  end
  return false
end
