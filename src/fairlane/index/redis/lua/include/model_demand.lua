--@include keys
-- Model demand: the number of flows of a queue that need each model. The cached numbers are updated when a
-- flow leaves. wanted.save() writes the size of each model's ranking.
local wanted = {known = {}, moved = {}}

-- A ranked flow was emptied or parked.
function wanted.leaves(flow)
  local known, model = wanted.known[flow.place.queue], flow.place.model
  if known and flow.ranked and known[model] then
    known[model] = known[model] > 1 and known[model] - 1 or nil
  end
end

function wanted.save()
  for place in pairs(wanted.moved) do
    local n, key = call('ZCARD', place.rankings.warm), life .. 'wanted:' .. place.queue
    if n > 0 then call('ZADD', key, n, place.model) else call('ZREM', key, place.model) end
  end
  wanted.known, wanted.moved = {}, {}
end
