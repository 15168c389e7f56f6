-- Commands with many arguments, run in parts, and writes that are collected and run together.
local AT_ONCE = 2000 -- the most arguments of one command; an even number

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
