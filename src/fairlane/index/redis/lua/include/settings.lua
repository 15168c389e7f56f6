--@include keys
-- Settings: tiers and services, as the last `configure` stored them.
local settings = {services = {}}

local function tiers()
  if not settings.tiers then
    local text = call('GET', prefix .. 'settings')
    local known = text and cjson.decode(text) or {names = {}, thresholds = {}, patience = {}}
    settings.tiers, settings.defaults = known, known.defaults
  end
  return settings.tiers
end

-- The settings of a service. A service that is not configured is a task type with default settings.
local function service_named(name)
  local known = settings.services[name]
  if not known then
    local text = call('HGET', prefix .. 'services', name)
    local configured = text
    if not text then
      tiers()
      text = settings.defaults
    end
    known = text and text ~= cjson.null and cjson.decode(text) or {
      fair = true, affinity = 'residency', batch = DEFAULT_BATCH_SIZE, limit = 0, rate = 0,
      shares = {DEFAULT_SKIP_SHARE, DEFAULT_FRONT_SHARE, DEFAULT_AGED_SHARE},
      regions = {}, paused = false, provider_limit = 0, provider_rate = 0,
    }
    known.name, known.is_task = name, not configured
    known.keeps_models = known.affinity ~= 'none'
    settings.services[name] = known
  end
  return known
end

local function add_limited(found, pool, limit, rate)
  if limit > 0 then found[#found + 1] = pool end
  if rate > 0 then found[#found + 1] = 'rate:' .. pool end
end

-- Every limited pool that a step of this service, run in this region (or nil), needs a slot in.
local function pool_names(service, region)
  local found = {}
  add_limited(found, 'svc:' .. service.name, service.limit, service.rate)
  for _, each in ipairs(service.regions) do
    if each[1] == region then
      add_limited(found, 'svc:' .. service.name .. '@' .. region, each[2], 0)
    end
  end
  if service.provider then
    add_limited(found, 'prov:' .. service.provider, service.provider_limit, service.provider_rate)
  end
  return found
end

-- The rank a job counts as after waiting this long.
local function level(rank, waited)
  local reached = rank
  for _, step in ipairs(tiers().thresholds[rank + 1]) do
    if waited < step[2] then break end
    reached = step[1]
  end
  return reached
end
