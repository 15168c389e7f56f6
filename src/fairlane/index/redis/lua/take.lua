-- Removes these jobs from the queue, unless the index knows a newer revision. While the index loads,
-- the removal is recorded.
-- KEYS prefix
-- ARGV jobs rest: id, revision for each job
--@include arrivals
for i = 1, #jobs, 2 do
  local id, rev = jobs[i], tonumber(jobs[i + 1])
  local known = call('HGET', life .. 'jobs', id)
  if known and rev_of(known) <= rev then news.remove(id) end
  if state.loading and rev > tonumber(call('HGET', life .. 'gone', id) or 0) then
    call('HSET', life .. 'gone', id, rev)
  end
end
flows.save()
