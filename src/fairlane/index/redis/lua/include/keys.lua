-- Key names: `prefix` begins every key, `life` every key of the present build of the index. A rebuild starts
-- with a new life. Every script includes this file, and with it exact numbers and batched commands.
local call, sub, match = redis.call, string.sub, string.match
local meta = call('HMGET', prefix .. 'meta', 'epoch', 'loading', 'life')
local state = {epoch = meta[1] or '', loading = meta[2] ~= '0'}
local life = prefix .. (meta[3] or '@') .. ':'
--@include exact_numbers

-- Increments the index's sequence number by n and returns the last new number.
local function next_number(n)
  return call('HINCRBY', prefix .. 'meta', 'numbers', n or 1)
end

--@include batched_commands

-- The run id of the server. Another server, or the same one after a restart, has a different one.
local function identity()
  return match(call('INFO', 'server'), 'run_id:(%x+)') or 'unknown'
end
