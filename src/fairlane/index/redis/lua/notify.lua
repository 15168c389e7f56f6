-- Listeners to these jobs, in processes other than the sender, hear that they have changed. Without a
-- process that listens it costs one command, with one it costs one command a job.
-- KEYS prefix
-- ARGV process text: the sender
-- ARGV jobs text: ids, with a space between two
if redis.call('EXISTS', prefix .. 'listening') == 1 then
  for job in string.gmatch(jobs, '%S+') do
    redis.call('PUBLISH', prefix .. 'changed:' .. job, process)
  end
end
