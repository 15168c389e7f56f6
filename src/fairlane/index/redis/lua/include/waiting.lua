--@include desk
-- What waits: in line, for its time, or (while loading) for the index to open.
local waiting = {}
local DUE_A_CLAIM = 128

function waiting.is_news(id, rev)
  local known = call('HGET', life .. 'jobs', id)
  if known and read_entry(id, known).rev >= rev then return false end
  if state.loading and tonumber(call('HGET', life .. 'gone', id) or 0) >= rev then return false end
  return tonumber(call('HGET', life .. 'held_revs', id) or 0) < rev
end

function waiting.count_delayed(entry, by)
  local key, field = life .. 'delayed', entry.lane .. '|' .. entry.rank
  if call('HINCRBY', key, field, by) <= 0 then call('HDEL', key, field) end
end

-- To its place in line, or to those who wait for their time.
function waiting.line_up(entry, now)
  desk.ensure(entry.service)
  if entry.ready_at > now then
    call('ZADD', life .. 'delays', whole(entry.ready_at), entry.id)
    waiting.count_delayed(entry, 1)
  else
    desk.enter(entry)
  end
end

function waiting.load(entry)
  call('HSET', life .. 'jobs', entry.id, entry.text)
  call('ZADD', life .. 'loading', whole(entry.score), entry.id)
end

function waiting.add(entry, now)
  if state.loading then
    desk.ensure(entry.service)
    waiting.load(entry)
  else
    call('HSET', life .. 'jobs', entry.id, entry.text)
    waiting.line_up(entry, now)
  end
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
  local due = call('ZRANGEBYSCORE', life .. 'delays', '-inf', whole(now), 'LIMIT', 0, DUE_A_CLAIM)
  for _, id in ipairs(due) do
    call('ZREM', life .. 'delays', id)
    local entry = waiting_entry(id)
    if entry then
      waiting.count_delayed(entry, -1)
      desk.ensure(entry.service)
      desk.enter(entry)
    end
  end
end
