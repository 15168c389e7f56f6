-- Publishes that these jobs have changed, for listeners in other processes. Costs one command if no
-- process listens, else one command per job.
-- KEYS prefix
-- ARGV process text: the sender
-- ARGV jobs text: ids, separated by spaces
if redis.call('EXISTS', prefix .. 'listening') == 1 then
  for job in string.gmatch(jobs, '%S+') do
    redis.call('PUBLISH', prefix .. 'changed:' .. job, process)
  end
end
