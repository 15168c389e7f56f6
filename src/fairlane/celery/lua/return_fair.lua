-- A worker has left: what was handed to it and not taken goes back to the front of the fair queue.
-- args: fair queue, prefix of the broker's keys, worker
-- returns: how many messages went back
-- cost: O(messages of this worker), at most its slots
local fair, broker, worker = ARGV[1], ARGV[2], ARGV[3]
local queue, moved = fair .. '.' .. worker, 0
redis.call('HDEL', key('fair:slots'), worker)
while true do
  local message = redis.call('LPOP', broker .. queue)
  if not message then break end
  redis.call('RPUSH', broker .. fair, message)
  local nonce = string.match(message, '"fairlane_lease": ?"[^"|]*|([^"]+)"') or '?'
  redis.call('ZREM', pending_of(queue), nonce)
  moved = moved + 1
end
refresh(queue)
return moved
