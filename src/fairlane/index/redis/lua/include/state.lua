-- What every script needs: the present life of the index, and numbers that stay exact.
-- `life` begins the name of every key that a rebuild leaves behind.
local call, format, sub, match = redis.call, string.format, string.sub, string.match
local meta = call('HMGET', prefix .. 'meta', 'epoch', 'loading', 'life')
local state = {epoch = meta[1] or '', loading = meta[2] ~= '0'}
local life = prefix .. (meta[3] or '@') .. ':'

-- A number as Redis wants it: all digits, no exponent.
local function whole(number)
  return format('%.0f', number)
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

-- Counts up for ever: the order in which things came.
local function next_number()
  return call('HINCRBY', prefix .. 'meta', 'numbers', 1)
end

-- Field names and values in turn, as a table.
local function pairs_of(flat)
  local found = {}
  for i = 1, #flat, 2 do found[flat[i]] = flat[i + 1] end
  return found
end
