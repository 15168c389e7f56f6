-- Queued jobs that by ageing count as a better rank than was announced: {id, rank} for each. Large
-- queues are examined in parts: each call continues where the last one stopped.
-- KEYS prefix
-- ARGV now number
-- ARGV limit number
--@include delayed_jobs
local LOOKED_AT = 1000 -- the most members that one call examines per queue or flow
local found = {}

-- The next members up to this score, with their scores.
local function next_ones(key, latest)
  local from = tonumber(call('HGET', life .. 'looked', key) or 0)
  local rows = call(
    'ZRANGEBYSCORE', key, '-inf', latest, 'WITHSCORES', 'LIMIT', from, LOOKED_AT)
  if #rows == 2 * LOOKED_AT then
    call('HINCRBY', life .. 'looked', key, LOOKED_AT)
  elseif from > 0 then
    call('HDEL', life .. 'looked', key)
  end
  return rows
end

local function look(queue, id, since)
  local reached = level(queue.rank, now - since)
  if reached < queue.rank and #found < limit then
    local entry = waiting_entry(id)
    if entry and reached < announced_of(entry) then found[#found + 1] = {id, reached} end
  end
end

local function look_at_heads(queue, latest)
  local due = {}
  local rows = next_ones(life .. 'aged:' .. queue.key, latest)
  for i = 1, #rows, 2 do due[#due + 1] = flows.of_member(rows[i]) end
  for _, name in ipairs(call('SMEMBERS', life .. 'parked:' .. queue.key)) do
    due[#due + 1] = flows.named(name)
  end
  for _, flow in ipairs(due) do flows.want_account(flow) end
  accounts.fetch()
  for _, flow in ipairs(due) do
    flows.look(flow)
    look(queue, flow.head.id, flows.since(flow))
  end
end

local function look_at_lines(queue, latest)
  for _, flow in ipairs(flows.all(queue.key)) do
    local overdue = next_ones(flow.line, latest)
    for i = 1, #overdue, 2 do look(queue, overdue[i], tonumber(overdue[i + 1])) end
  end
end

waiting.move_due(now)
for _, name in ipairs(service_queue.all()) do
  for _, queue in ipairs(service_queue.queues(name)) do
    local steps = queue.band == TIER and tiers().thresholds[queue.rank + 1] or {}
    if #steps > 0 then
      local look_at = service_named(name).fair and look_at_heads or look_at_lines
      look_at(queue, now - steps[1][2])
    end
  end
end
return found
