-- What every script needs: the present life of the index, numbers that stay exact, and writes that
-- wait until all of them can be made at once. `life` begins the name of every key that a rebuild
-- leaves behind.
local call, sub, match = redis.call, string.sub, string.match
local meta = call('HMGET', prefix .. 'meta', 'epoch', 'loading', 'life')
local state = {epoch = meta[1] or '', loading = meta[2] ~= '0'}
local life = prefix .. (meta[3] or '@') .. ':'
local AT_ONCE = 2000 -- the most arguments of one command; an even number
local LARGEST = 9007199254740993 -- 2^53 and one

-- A number as a text: all digits, no exponent.
local function whole(number)
  return string.format('%.0f', number)
end

-- A number that was kept. One that is none, or larger than whole numbers are exact, has not been written
-- by a script: comparing it would never end.
local function sound(number)
  if number < LARGEST and number > -LARGEST then return number end
  error('a number that nobody has written')
end

-- Division as Python's //, exact up to 2^53.
local function floor_div(number, by)
  local rest = math.fmod(number, by)
  if rest < 0 then rest = rest + by end
  return (number - rest) / by
end

-- Whether one text comes before another, byte by byte. Lua's own < asks the server's locale.
local function before(one, other)
  if one == other then return false end
  local shorter = math.min(#one, #other)
  for i = 1, shorter do
    local a, b = string.byte(one, i), string.byte(other, i)
    if a ~= b then return a < b end
  end
  return #one < #other
end

-- Counts up for ever: the order in which things came. The last of n new numbers.
local function next_number(n)
  return call('HINCRBY', prefix .. 'meta', 'numbers', n or 1)
end

-- Field names and values in turn, as a table.
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

-- Run a command with all these arguments. The sum of what it answers.
local function with_all(command, key, arguments)
  local n, sum = #arguments, 0
  for from = 1, n, AT_ONCE do
    sum = sum + call(command, key, unpack(arguments, from, math.min(n, from + AT_ONCE - 1)))
  end
  return sum
end

-- --- writes that are made together ------------------------------------------------------------------
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

-- In the order in which they were first asked for.
function later.run()
  for _, each in ipairs(later.lists) do
    local list = each[3]
    with_all(each[1], each[2], list)
    for i = #list, 1, -1 do list[i] = nil end
  end
end

-- Which server this is. Another one, or the same one started again, has another name.
local function identity()
  return match(call('INFO', 'server'), 'run_id:(%x+)') or 'unknown'
end
