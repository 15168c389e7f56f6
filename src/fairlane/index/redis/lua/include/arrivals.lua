--@include delayed_jobs
-- Arrivals and removals of waiting jobs: in the queue, among the delayed jobs, or (while the index loads)
-- among the jobs to be queued when it opens.
local news = {}

-- Decodes what codec.py sent: the ids, and for each its decoded entry, which several jobs may share.
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

-- For each job the highest known revision (waiting, held or removed), and its encoded entry if it waits.
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

-- Delays the job if it is not ready; else the next service_queue.enter() queues it.
function news.line_up(id, score, ready_at, owner, now)
  if ready_at > now then
    service_queue.ensure(owner.spec.service)
    call('ZADD', life .. 'delays', ready_at, id)
    waiting.count_delayed(owner.spec, 1)
  else
    service_queue.comes(id, score, owner)
  end
end

-- Adds a job, which the next later.run() stores. While the index loads, it is queued when the index opens.
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

-- Queues and stores the added jobs.
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
