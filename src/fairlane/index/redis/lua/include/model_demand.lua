--@include state
-- How many flows of a queue need each model. What a script knows of it stays true while flows leave;
-- wanted.save() writes it, as many as the model's ranking holds by then.
local wanted = {known = {}, moved = {}}

-- Who had work for a claim has none any more.
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
