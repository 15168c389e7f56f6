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

-- A job of this tenant with this model was completed.
function model_times.used_by(tenant, field)
  call('ZADD', prefix .. 'used_models', next_number(), tenant .. '|' .. field)
  call('ZREMRANGEBYRANK', prefix .. 'used_models', 0, -MAX_AVERAGES - 1)
end

-- {service, model, load time or nil, work time or nil, number of loads} for each of the models of a service that
-- were used last, by completed jobs of this tenant or ('') of any.
function model_times.recent(service, tenant, most)
  local order, start, found = 'loads_order', service .. '|', {}
  if tenant ~= '' then order, start = 'used_models', tenant .. '|' .. start end
  for _, member in ipairs(call('ZRANGE', prefix .. order, 0, -1, 'REV')) do
    if #found == most then break end
    local model = sub(member, #start + 1)
    local field = service .. '|' .. model
    if model ~= '' and sub(member, 1, #start) == start and call('ZSCORE', prefix .. 'loads_order', field) then
      local row = {service, model}
      for _, name in ipairs({'loads', 'works', 'load_counts'}) do
        row[#row + 1] = tonumber(call('HGET', prefix .. name, field) or nil) or false
      end
      row[5] = row[5] or 0
      found[#found + 1] = row
    end
  end
  return found
end
