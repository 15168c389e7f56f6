-- Fair queueing: sorts new messages into one line per user, and hands the next ones to workers with a
-- free slot, one user after the other. Runs on the broker's Redis.
-- args: fair queue, prefix of the broker's keys
-- returns: how many messages were handed to workers
-- cost: O(messages moved + workers), at most 200 messages
local fair, broker = ARGV[1], ARGV[2]
redis.call('SET', key('fair:queue'), fair) -- for readers that have no Celery app
local now, most = now_seconds(), 200
local users, delayed, served = key('fair:users'), key('fair:delayed'), key('fair:served')
local turn = tonumber(redis.call('GET', key('fair:turn')) or 0)

local function line_up(message)
  local user = string.match(message, '"fairlane_user": ?"([^"]*)"') or ''
  local line = key('fair:line:' .. user)
  if redis.call('LPUSH', line, message) == 1 then
    local last = tonumber(redis.call('ZSCORE', served, user) or -1)
    redis.call('ZADD', users, math.max(turn, last + 1), user)
  end
end

for _ = 1, most do
  local message = redis.call('RPOP', broker .. fair)
  if not message then break end
  local due = tonumber(string.match(message, '"fairlane_due": ?([%d%.]+)') or 0)
  if due > now then redis.call('ZADD', delayed, due, message) else line_up(message) end
end
for _, message in ipairs(redis.call('ZRANGEBYSCORE', delayed, '-inf', now, 'LIMIT', 0, most)) do
  redis.call('ZREM', delayed, message)
  line_up(message)
end

local slots, free = redis.call('HGETALL', key('fair:slots')), {}
for index = 1, #slots, 2 do
  local queue = fair .. '.' .. slots[index]
  local taken = redis.call('ZCARD', pending_of(queue)) + redis.call('ZCARD', running_of(queue))
  free[#free + 1] = {queue = queue, slots = tonumber(slots[index + 1]) - taken}
end
local released = 0
while released < most do
  table.sort(free, function(a, b)
    return a.slots > b.slots or (a.slots == b.slots and a.queue < b.queue)
  end)
  local next_user = redis.call('ZRANGE', users, 0, 0, 'WITHSCORES')
  if #next_user == 0 or #free == 0 or free[1].slots < 1 then break end
  local user, worker = next_user[1], free[1]
  turn = math.max(turn, tonumber(next_user[2]))
  local message = redis.call('RPOP', key('fair:line:' .. user))
  if redis.call('EXISTS', key('fair:line:' .. user)) == 1 then
    redis.call('ZADD', users, turn + 1, user)
  else
    redis.call('ZREM', users, user)
    redis.call('ZADD', served, turn, user)
  end
  if message then
    local nonce = string.match(message, '"fairlane_lease": ?"[^"|]*|([^"]+)"') or '?'
    redis.call('LPUSH', broker .. worker.queue, message)
    redis.call('ZADD', pending_of(worker.queue), now, nonce)
    refresh(worker.queue)
    worker.slots = worker.slots - 1
    released = released + 1
  end
end
redis.call('SET', key('fair:turn'), turn)
redis.call('ZREMRANGEBYSCORE', served, '-inf', '(' .. turn)
return released
