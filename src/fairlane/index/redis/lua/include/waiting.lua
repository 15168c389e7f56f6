--@include desk
-- What waits: in line, for its time, or (while loading) for the index to open.
local waiting = {}
local DUE_A_CLAIM = 128

-- For each id the highest rev at which it is no news: of those that wait, are held, or have gone.
function waiting.known_revs(ids)
  local texts, revs = values_of(life .. 'jobs', ids), values_of(life .. 'held_revs', ids)
  local gone = state.loading and values_of(life .. 'gone', ids) or {}
  local found = {}
  for i, text in ipairs(texts) do
    local rev = tonumber(revs[i] or 0)
    if gone[i] then rev = math.max(rev, tonumber(gone[i])) end
    if text then rev = math.max(rev, rev_of(text)) end
    found[i] = rev
  end
  return found, texts
end

function waiting.count_delayed(entry, by)
  local key, field = life .. 'delayed', entry.spec.lane .. '|' .. entry.spec.rank
  if call('HINCRBY', key, field, by) <= 0 then call('HDEL', key, field) end
end

local function delay(entry)
  call('ZADD', life .. 'delays', entry.ready_at, entry.id)
  waiting.count_delayed(entry, 1)
end

-- To their places in line, or to those who wait for their time.
function waiting.line_up(entries, now)
  local ready = {}
  for _, entry in ipairs(entries) do
    desk.ensure(entry.spec.service)
    if entry.ready_at > now then delay(entry) else ready[#ready + 1] = entry end
  end
  desk.enter(ready)
end

-- Known, and waiting for the index to open.
function waiting.load(entries)
  local jobs, order = later.list('HSET', life .. 'jobs'), later.list('ZADD', life .. 'loading')
  for _, entry in ipairs(entries) do
    jobs[#jobs + 1], jobs[#jobs + 2] = entry.id, entry.text
    order[#order + 1], order[#order + 2] = entry.score, entry.id
  end
  later.run()
end

function waiting.add(entries, now)
  if state.loading then
    for _, entry in ipairs(entries) do desk.ensure(entry.spec.service) end
    waiting.load(entries)
    return
  end
  local jobs = later.list('HSET', life .. 'jobs')
  for _, entry in ipairs(entries) do
    jobs[#jobs + 1], jobs[#jobs + 2] = entry.id, entry.text
  end
  waiting.line_up(entries, now)
  later.run()
end

function waiting.remove(id)
  local entry = waiting_entry(id)
  if not entry then return end
  call('HDEL', life .. 'jobs', id)
  if state.loading and call('ZREM', life .. 'loading', id) == 1 then return end
  if call('ZREM', life .. 'delays', id) == 1 then
    waiting.count_delayed(entry, -1)
  else
    desk.remove(entry)
  end
end

-- Those whose time has come step into line.
function waiting.move_due(now)
  if state.loading then return end
  local due = call('ZRANGEBYSCORE', life .. 'delays', '-inf', now, 'LIMIT', 0, DUE_A_CLAIM)
  if #due == 0 then return end
  call('ZREM', life .. 'delays', unpack(due))
  local entries = {}
  for i, text in ipairs(values_of(life .. 'jobs', due)) do
    if text then
      local entry = read_entry(due[i], text)
      waiting.count_delayed(entry, -1)
      desk.ensure(entry.spec.service)
      entries[#entries + 1] = entry
    end
  end
  desk.enter(entries)
  flows.save()
end
