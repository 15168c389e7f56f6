--@include settings
-- Waiting jobs: their entries without the id, as codec.py encodes them. A place is what the flows of
-- several users have in common: lane, band, tier, cap and model.
local LAYOUT, ANNOUNCED_AT, PLACE_AT = '<I4dddBBBdHH', 29, 30
local places = {specs = {}, named = {}, owners = {}}

local function split(text)
  local found = {}
  for part in string.gmatch(text, '[^,]+') do found[#found + 1] = part end
  return found
end

local function read_lane(name)
  local service, regions, capabilities = match(name, '^([^|]*)|([^|]*)|([^|]*)$')
  return {service = service, regions = split(regions), capabilities = split(capabilities)}
end

-- The place's `name` is the prefix of the names of its flows.
function places.get(lane, band, rank, cap, model)
  local service = service_named(match(lane, '^[^|]*'))
  if band ~= TIER then rank = -1 end
  if not service.keeps_models then model = '' end
  local name = lane .. '|' .. band .. '.' .. rank .. '.' .. whole(cap) .. '|' .. model .. '|'
  local place = places.named[name]
  if not place then
    place = {
      name = name, lane = lane, band = band, rank = rank, cap = cap, model = model, flows = {},
      service = service.name, fair = service.fair and band == TIER,
      queue = lane .. '|' .. band .. '.' .. rank,
    }
    place.by_user = place.fair or cap > 0
    places.named[name] = place
  end
  return place
end

-- The place with this name.
function places.of_name(name)
  local place = places.named[name]
  if place then return place end
  local lane, band, rank, cap, model =
    match(name, '^([^|]*|[^|]*|[^|]*)|(%d+)%.(%-?%d+)%.(%d+)|([^|]*)|$')
  return places.get(lane, tonumber(band), tonumber(rank), tonumber(cap), model)
end

-- Clears the cache: other settings lead to other places.
function places.forget()
  places.specs, places.named, places.owners = {}, {}, {}
end

-- Decodes the entry at `from`: rev, score, ready_at, cost, spec and the offset of the user. `spec` is
-- what many entries have in common: lane, model, band, rank, cap, place and service.
local function read_text(text, from)
  local rev, score, ready_at, cost, _, band, rank, cap, lane_length, model_length, at =
    struct.unpack(LAYOUT, text, from)
  local user_at = at + lane_length + model_length
  local same = sub(text, from + PLACE_AT - 1, user_at - 1)
  local spec = places.specs[same]
  if not spec then
    local lane = sub(text, at, at + lane_length - 1)
    local model = sub(text, at + lane_length, user_at - 1)
    spec = {lane = lane, model = model, band = band, rank = rank, cap = cap}
    spec.place = places.get(lane, band, rank, cap, model)
    spec.service = spec.place.service
    places.specs[same] = spec
  end
  return rev, sound(score), sound(ready_at), sound(cost), spec, user_at
end

local function read_entry(id, text)
  local rev, score, ready_at, cost, spec, user_at = read_text(text, 1)
  return {
    id = id, text = text, rev = rev, score = score, ready_at = ready_at, cost = cost,
    user = sub(text, user_at), spec = spec,
  }
end

-- Score, ready_at and owner (spec and user). Encoded entries of one user in one place have the same
-- ending, so that only the first of them is decoded completely.
local function read_coming(text)
  local _, score, ready_at = struct.unpack('<I4dd', text)
  local ending = sub(text, PLACE_AT)
  local owner = places.owners[ending]
  if not owner then
    local _, _, _, _, spec, user_at = read_text(text, 1)
    owner = {spec = spec, user = sub(text, user_at)}
    places.owners[ending] = owner
  end
  return sound(score), sound(ready_at), owner
end

local function announced_of(entry)
  return string.byte(entry.text, ANNOUNCED_AT)
end

local function rev_of(text)
  return (struct.unpack('<I4', text))
end

local function waiting_entry(id)
  local text = call('HGET', life .. 'jobs', id)
  return text and read_entry(id, text) or nil
end
