-- The stored entries of these jobs: {revision under which the job is held or -1, encoded entry or false}
-- for each. Fails if a waiting job is missing from its queue: then the index is damaged.
-- KEYS prefix
-- ARGV jobs rest: ids
--@include delayed_jobs
local function is_at(key, entry, score)
  local found = call('ZSCORE', key, entry.id)
  return found and tonumber(found) == score
end

local function is_queued(entry)
  if is_at(life .. 'delays', entry, entry.ready_at) then return true end
  local flow = flows.of(entry)
  if flow.is_found == nil then
    flow.is_found = service_queue.has(flow.place) and flows.is_ranked(flow)
  end
  return flow.is_found and is_at(flow.line, entry, entry.score)
end

local texts, revs, found = values_of(life .. 'jobs', jobs), values_of(life .. 'held_revs', jobs), {}
for i, text in ipairs(texts) do
  if text and not state.loading and not is_queued(read_entry(jobs[i], text)) then
    error('job ' .. jobs[i] .. ' is not in its queue')
  end
  found[i] = {tonumber(revs[i] or -1), text}
end
return found
