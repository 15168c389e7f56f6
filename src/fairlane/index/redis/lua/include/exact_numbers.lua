-- Exact numbers and comparisons: the results are those of Python, with every version of Lua and every locale.
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
