-- Shared by every script. A lease is one member of pending:{queue} or running:{queue}; a queue's load is
-- computed from these two sets after every change, so it cannot drift from the leases.
local function key(name) return KEYS[1] .. name end
local function pending_of(queue) return key('pending:' .. queue) end
local function running_of(queue) return key('running:' .. queue) end

local function now_seconds()
  local time = redis.call('TIME')
  return tonumber(time[1]) + tonumber(time[2]) / 1000000
end

-- The score in `load` is the load plus the queue's index in millionths: ties go to the lowest index. A
-- script that has read the score passes it.
local function refresh(queue, known_score)
  local pending = redis.call('ZCARD', pending_of(queue))
  local running = redis.call('ZCARD', running_of(queue))
  local copy = 'queue:' .. queue
  redis.call('MSET', copy .. ':pending', pending, copy .. ':running', running)
  local score = tonumber(known_score or redis.call('ZSCORE', key('load'), queue) or -1)
  if score >= 0 then
    local index = math.floor((score - math.floor(score)) * 1000000 + 0.5)
    local load = tonumber(redis.call('GET', key('work:' .. queue)) or pending + running)
    redis.call('ZADD', key('load'), load + index / 1000000, queue)
  end
end

-- With weights, work:{queue} is the sum of the expected milliseconds of the queue's leases.
local function weigh(queue, nonce, weight)
  if weight > 0 and redis.call('HSETNX', key('weights'), nonce, weight) == 1 then
    redis.call('INCRBY', key('work:' .. queue), weight)
  end
end

local function unweigh(queue, nonce)
  local weight = redis.call('HGET', key('weights'), nonce)
  if weight then
    redis.call('HDEL', key('weights'), nonce)
    redis.call('DECRBY', key('work:' .. queue), weight)
  end
end

local function release_lease(queue, nonce)
  redis.call('ZREM', pending_of(queue), nonce)
  redis.call('ZREM', running_of(queue), nonce)
  redis.call('HDEL', key('owners'), nonce)
  unweigh(queue, nonce)
  refresh(queue)
end

-- A lease is written as "queue|nonce", in message headers and between Python and Lua.
local function split_lease(lease)
  local at = string.find(lease, '|', 1, true)
  return string.sub(lease, 1, at - 1), string.sub(lease, at + 1)
end

local function weight_of(task, weighted)
  if weighted ~= '1' then return 0 end
  return math.floor(tonumber(redis.call('HGET', key('durations'), task) or 1000) + 1)
end
