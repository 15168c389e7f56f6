--@include keys
-- What is learnt of models, by `service|model` and by `service|`: averages of their load and work times,
-- and how often each was loaded. The least recently updated ones are deleted.
local model_times = {}

local function average(name, field, value)
  local old = tonumber(call('HGET', prefix .. name, field) or nil)
  local new = old and old + floor_div((value - old) * ALPHA_THOUSANDTHS, 1000) or value
  call('HSET', prefix .. name, field, whole(new))
end

local function updated(field)
  local order = prefix .. 'loads_order'
  call('ZADD', order, next_number(), field)
  while call('ZCARD', order) > MAX_AVERAGES do
    local oldest = call('ZPOPMIN', order)[1]
    for _, name in ipairs({'loads', 'works', 'load_counts'}) do call('HDEL', prefix .. name, oldest) end
  end
end

-- Times in microseconds; null = not known.
function model_times.learn(field, load, work)
  if load ~= cjson.null then average('loads', field, load) end
  if work ~= cjson.null then average('works', field, work) end
  updated(field)
end

-- A job was started that has to load this model.
function model_times.count_load(field)
  call('HINCRBY', prefix .. 'load_counts', field, 1)
  updated(field)
end

-- {service, model, load time or nil, work time or nil, number of loads} for each model.
function model_times.all()
  local found, loads = {}, pairs_of(call('HGETALL', prefix .. 'loads'))
  local works, counts = pairs_of(call('HGETALL', prefix .. 'works')), pairs_of(call('HGETALL', prefix .. 'load_counts'))
  for _, field in ipairs(call('ZRANGE', prefix .. 'loads_order', 0, -1)) do
    local service, model = match(field, '^([^|]*)|(.+)$')
    if service then
      found[#found + 1] = {
        service, model, tonumber(loads[field]) or false, tonumber(works[field]) or false, tonumber(counts[field]) or 0,
      }
    end
  end
  return found
end
