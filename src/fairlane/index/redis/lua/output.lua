-- Publishes chunks of streamed output for listeners in other processes. Returns how many processes
-- heard each message. Costs one command per message.
-- KEYS prefix
-- ARGV process text: the sender
-- ARGV messages rest: pairs of a job's id and a text
local heard = {}
for i = 1, #messages, 2 do
  local channel = prefix .. 'output:' .. messages[i]
  heard[#heard + 1] = redis.call('PUBLISH', channel, process .. ' ' .. messages[i + 1])
end
return heard
