--@include state
-- Waiting jobs: the texts of their entries without the id, as Python has written them.
local TIER, FRONT, SKIP = 2, 1, 0

local function read_entry(id, text)
  local v = cjson.decode(text)
  return {
    id = id, text = text, rev = v[1], lane = v[2], band = v[3], rank = v[4], score = v[5],
    ready_at = v[6], user = v[7], model = v[8], cost = v[9], cap = v[10], announced = v[11],
    service = match(v[2], '^[^|]*'),
  }
end

local function waiting_entry(id)
  local text = call('HGET', life .. 'jobs', id)
  return text and read_entry(id, text) or nil
end

local function split(text)
  local found = {}
  for part in string.gmatch(text, '[^,]+') do found[#found + 1] = part end
  return found
end

local function read_lane(name)
  local service, regions, capabilities = match(name, '^([^|]*)|([^|]*)|([^|]*)$')
  return {service = service, regions = split(regions), capabilities = split(capabilities)}
end
