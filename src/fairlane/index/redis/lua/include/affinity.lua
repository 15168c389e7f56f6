--@include state
-- Model affinity: when a worker keeps the model it has loaded instead of taking the job that is up.
local LOAD_SHARE, WORTH_IT, FIRST_LOAD = 80, 50, 3500000

-- How long loading this model takes: the average, else the service's, else a first guess.
local function load_time(service, model)
  local found = call('HGET', prefix .. 'loads', service .. '|' .. model)
  return tonumber(found or call('HGET', prefix .. 'loads', service .. '|') or FIRST_LOAD)
end

local function residency(pick)
  local stay = floor_div(pick.load * (1000 - LOAD_SHARE), LOAD_SHARE)
  return pick.single_slot and math.min(stay, pick.patience) or stay
end

-- Whether the best job for the loaded model goes before the pick.
local function stays(service, loaded, pick, warm_rank, now)
  if service.affinity == 'batch' then
    return loaded.streak < service.batch and pick.age < pick.patience
  end
  if service.affinity == 'none' or pick.load * 1000 < pick.service_time * WORTH_IT then
    return false
  end
  if now - loaded.since < residency(pick) then return true end
  if pick.rank < warm_rank then return false end
  return pick.patience - pick.age - pick.load > pick.service_time
end
