--@include keys
-- Model affinity: when a worker keeps its loaded model instead of taking the next job in order.

-- The load time of this model in microseconds: its average, else the service's, else the assumed one.
local function load_time(service, model)
  local known = values_of(prefix .. 'loads', {service.name .. '|' .. model, service.name .. '|'})
  return tonumber(known[1] or known[2] or service.model_load or FIRST_LOAD_MICROSECONDS)
end

local function residency(pick)
  local stay = floor_div(pick.load * (1000 - LOAD_SHARE_THOUSANDTHS), LOAD_SHARE_THOUSANDTHS)
  return pick.single_slot and math.min(stay, pick.patience) or stay
end

local function is_worth_it(pick)
  return pick.load * 1000 >= pick.service_time * MIN_LOAD_THOUSANDTHS
end

-- Whether the best job for the loaded model starts before the pick.
local function stays(service, loaded, pick, warm_rank, now)
  if service.affinity == 'batch' then
    return loaded.streak < service.batch and pick.age < pick.patience
  end
  if service.affinity == 'none' or not is_worth_it(pick) then return false end
  if now - loaded.since < residency(pick) then return true end
  if pick.rank < warm_rank then return false end
  return pick.patience - pick.age - pick.load > pick.service_time
end

-- Whether a worker that has to load a model may load one that another job of that tier needs instead.
local function may_wait(service, pick)
  return service.affinity == 'residency' and is_worth_it(pick) and pick.age < pick.patience
end

-- The model with the most waiting users per worker: the workers that have loaded it lately, plus this one.
-- On a tie `own`, then the first by name.
local function most_wanted(users, loads, own)
  local best = own
  for model, n in pairs(users) do
    local here, there = n * ((loads[best] or 0) + 1), (users[best] or 0) * ((loads[model] or 0) + 1)
    if here > there or (here == there and best ~= own and before(model, best)) then best = model end
  end
  return best
end
