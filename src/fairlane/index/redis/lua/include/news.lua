--@include waiting
-- What comes and goes: into line, to those who wait for their time, or (while loading) to those who
-- wait for the index to open.
local news = {}

-- For each id the highest rev at which it is no news: of those that wait, are held, or have gone.
function news.known_revs(ids)
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

local function delay(entry)
  call('ZADD', life .. 'delays', entry.ready_at, entry.id)
  waiting.count_delayed(entry, 1)
end

-- To their places in line, or to those who wait for their time.
function news.line_up(entries, now)
  local ready = {}
  for _, entry in ipairs(entries) do
    desk.ensure(entry.spec.service)
    if entry.ready_at > now then delay(entry) else ready[#ready + 1] = entry end
  end
  desk.enter(ready)
end

-- Known, and waiting for the index to open.
function news.load(entries)
  local jobs, order = later.list('HSET', life .. 'jobs'), later.list('ZADD', life .. 'loading')
  for _, entry in ipairs(entries) do
    jobs[#jobs + 1], jobs[#jobs + 2] = entry.id, entry.text
    order[#order + 1], order[#order + 2] = entry.score, entry.id
  end
  later.run()
end

function news.add(entries, now)
  if state.loading then
    for _, entry in ipairs(entries) do desk.ensure(entry.spec.service) end
    news.load(entries)
    return
  end
  local jobs = later.list('HSET', life .. 'jobs')
  for _, entry in ipairs(entries) do
    jobs[#jobs + 1], jobs[#jobs + 2] = entry.id, entry.text
  end
  news.line_up(entries, now)
  later.run()
end

function news.remove(id)
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
