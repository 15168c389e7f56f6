-- Shared state of all scripts: the present build of the index, exact numbers, and batched writes. `life` is
-- the key prefix of the present build: a rebuild starts with a new one.
local call, sub, match = redis.call, string.sub, string.match
local meta = call('HMGET', prefix .. 'meta', 'epoch', 'loading', 'life')
local state = {epoch = meta[1] or '', loading = meta[2] ~= '0'}
local life = prefix .. (meta[3] or '@') .. ':'
local AT_ONCE = 2000 -- the most arguments of one command; an even number
local LARGEST = 9007199254740993 -- 2^53 and one

-- A number as a string: all digits, no exponent.
local function whole(number)
  return string.format('%.0f', number)
end

-- Checks a stored number. NaN, or a number too large to be an exact integer, was not written by a script
-- and could make a comparison loop endless.
local function sound(number)
  if number < LARGEST and number > -LARGEST then return number end
  error('a stored number that no script has written')
end

-- Division as Python's //, exact up to 2^53.
local function floor_div(number, by)
  local rest = math.fmod(number, by)
  if rest < 0 then rest = rest + by end
  return (number - rest) / by
end

-- Whether one string sorts before another by bytes. Lua's own < depends on the server's locale.
local function before(one, other)
  if one == other then return false end
  local shorter = math.min(#one, #other)
  for i = 1, shorter do
    local a, b = string.byte(one, i), string.byte(other, i)
    if a ~= b then return a < b end
  end
  return #one < #other
end

-- Increments the index's sequence number by n and returns the last new number.
local function next_number(n)
  return call('HINCRBY', prefix .. 'meta', 'numbers', n or 1)
end

-- A flat list of field, value as a table.
local function pairs_of(flat)
  local found = {}
  for i = 1, #flat, 2 do found[flat[i]] = flat[i + 1] end
  return found
end

-- The values of many fields of a hash.
local function values_of(key, fields)
  if #fields == 0 then return {} end
  if #fields <= AT_ONCE then return call('HMGET', key, unpack(fields)) end
  local found = {}
  for from = 1, #fields, AT_ONCE do
    local to = math.min(#fields, from + AT_ONCE - 1)
    for i, value in ipairs(call('HMGET', key, unpack(fields, from, to))) do
      found[from + i - 1] = value
    end
  end
  return found
end

-- Runs a command with all these arguments, in parts. Returns the sum of the answers.
local function with_all(command, key, arguments)
  local n, sum = #arguments, 0
  for from = 1, n, AT_ONCE do
    sum = sum + call(command, key, unpack(arguments, from, math.min(n, from + AT_ONCE - 1)))
  end
  return sum
end

-- --- batched writes ---------------------------------------------------------------------------------
local later = {known = {}, lists = {}}

-- The arguments with which later.run() runs this command on this key.
function later.list(command, key)
  local name = command .. ' ' .. key
  local list = later.known[name]
  if not list then
    list = {}
    later.known[name] = list
    later.lists[#later.lists + 1] = {command, key, list}
  end
  return list
end

-- Runs the commands in the order in which their lists were created.
function later.run()
  for _, each in ipairs(later.lists) do
    local list = each[3]
    with_all(each[1], each[2], list)
    for i = #list, 1, -1 do list[i] = nil end
  end
end

-- The run id of the server. Another server, or the same one after a restart, has a different one.
local function identity()
  return match(call('INFO', 'server'), 'run_id:(%x+)') or 'unknown'
end
