--@include service_queue
-- Delayed jobs: retries in their backoff, and jobs with a later start time.
local waiting = {}

function waiting.count_delayed(spec, by)
  local key, field = life .. 'delayed', spec.lane .. '|' .. spec.rank
  if call('HINCRBY', key, field, by) <= 0 then call('HDEL', key, field) end
end

-- Queues the delayed jobs that are due.
function waiting.move_due(now)
  if state.loading then return end
  local due = call('ZRANGEBYSCORE', life .. 'delays', '-inf', now, 'LIMIT', 0, MAX_DUE_JOBS_PER_CLAIM)
  if #due == 0 then return end
  call('ZREM', life .. 'delays', unpack(due))
  for i, text in ipairs(values_of(life .. 'jobs', due)) do
    if text then
      local score, _, owner = read_coming(text)
      waiting.count_delayed(owner.spec, -1)
      service_queue.comes(due[i], score, owner)
    end
  end
  service_queue.enter()
  flows.save()
end
