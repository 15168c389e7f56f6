--@include entry
-- Held entries (jobs that were handed out) by fencing token, and the reservation of last slots.
local held = {}
local HELD = '<ddHH' -- since, number, lengths of id and text; then id, text, slots and, if there is one, the region

local function unpacked(packed)
  local since, number, id_length, text_length, at = struct.unpack(HELD, packed)
  local text_at = at + id_length
  local rest, slots, region = sub(packed, text_at + text_length), {}, ''
  if rest ~= '' then slots, region = cmsgpack.unpack(rest) end
  return {
    id = sub(packed, at, text_at - 1), text = sub(packed, text_at, text_at + text_length - 1),
    slots = slots, region = region or '', at = since, number = number,
  }
end

-- For each token its held entry, or false.
function held.all(tokens)
  local found = {}
  for i, packed in ipairs(values_of(life .. 'held', tokens)) do
    found[i] = packed and unpacked(packed)
  end
  return found
end

-- Decodes the job of a held entry: id, rev, cost, spec and user.
function held.job(packed)
  local _, _, id_length, text_length, at = struct.unpack(HELD, packed)
  local text_at = at + id_length
  local rev, _, _, cost, spec, user_at = read_text(packed, text_at)
  local user = sub(packed, user_at, text_at + text_length - 1)
  return sub(packed, at, text_at - 1), rev, cost, spec, user
end

-- The slots of a held entry: [pool, n, until] for each.
function held.slots(packed)
  return unpacked(packed).slots
end

-- Adds a held entry. `slots` is packed by pools.packed(), `region` may be nil. Written by later.run().
function held.file(token, entry, slots, since, number, seen_at, region)
  if not held.files then
    held.files, held.revs = later.list('HSET', life .. 'held'), later.list('HSET', life .. 'held_revs')
    held.seen = later.list('ZADD', life .. 'seen')
  end
  local id, text, files, revs, seen = entry.id, entry.text, held.files, held.revs, held.seen
  files[#files + 1] = token
  local where = slots
  if region then where = (slots ~= '' and slots or cmsgpack.pack({})) .. cmsgpack.pack(region) end
  files[#files + 1] = struct.pack(HELD, since, number, #id, #text) .. id .. text .. where
  revs[#revs + 1], revs[#revs + 2] = id, entry.rev
  seen[#seen + 1], seen[#seen + 2] = seen_at, token
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
