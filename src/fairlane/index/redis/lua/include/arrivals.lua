--@include delayed_jobs
-- What comes and goes: into line, to those who wait for their time, or (while loading) to those who
-- wait for the index to open.
local news = {}

-- What was sent (texts.py): the ids, each once, and for each what its text says, which many may share.
function news.read(numbers, words)
  local ids, said, read = {}, {}, {}
  local n = #numbers / 4
  local texts = #words - n
  for i = 1, n do
    local number = struct.unpack('<I4', numbers, 4 * i - 3)
    local its = read[number]
    if not its then
      local text = words[number]
      local score, ready_at, owner = read_coming(text)
      its = {text = text, rev = rev_of(text), score = score, ready_at = ready_at, owner = owner}
      read[number] = its
    end
    ids[i], said[i] = words[texts + i], its
  end
  return ids, said
end

-- For each of them the highest rev at which it is no news, of those that wait, are held, or have gone;
-- and the texts of those that wait.
function news.known(ids)
  local found = {}
  local texts, revs = values_of(life .. 'jobs', ids), values_of(life .. 'held_revs', ids)
  local gone = state.loading and values_of(life .. 'gone', ids) or {}
  for i, text in ipairs(texts) do
    local rev = revs[i] and tonumber(revs[i]) or 0
    if gone[i] then rev = math.max(rev, tonumber(gone[i])) end
    if text then rev = math.max(rev, rev_of(text)) end
    found[i] = rev
  end
  return found, texts
end

-- The next service_queue.enter() puts it in its place in line, unless it waits for its time.
function news.line_up(id, score, ready_at, owner, now)
  if ready_at > now then
    service_queue.ensure(owner.spec.service)
    call('ZADD', life .. 'delays', ready_at, id)
    waiting.count_delayed(owner.spec, 1)
  else
    service_queue.comes(id, score, owner)
  end
end

-- Known from the next later.run() on, and in line, or waiting for the index to open.
function news.add(id, its, now)
  local jobs = news.jobs
  if not jobs then
    jobs = later.list('HSET', life .. 'jobs')
    news.jobs = jobs
  end
  local n = #jobs
  jobs[n + 1], jobs[n + 2] = id, its.text
  if state.loading then
    local order = later.list('ZADD', life .. 'loading')
    service_queue.ensure(its.owner.spec.service)
    order[#order + 1], order[#order + 2] = its.score, id
  else
    news.line_up(id, its.score, its.ready_at, its.owner, now)
  end
end

-- Those who were added stand in line.
function news.enter()
  service_queue.enter()
  later.run()
end

function news.remove(id)
  local entry = waiting_entry(id)
  if not entry then return end
  call('HDEL', life .. 'jobs', id)
  if state.loading and call('ZREM', life .. 'loading', id) == 1 then return end
  if call('ZREM', life .. 'delays', id) == 1 then
    waiting.count_delayed(entry.spec, -1)
  else
    service_queue.remove(entry)
  end
end
