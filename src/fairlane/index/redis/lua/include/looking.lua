--@include flows
-- The first of a queue in one of its rankings and as many parked ones; and how many there are in all.
function flows.some(queue, ranking, most)
  local found, key = {}, life .. ranking .. queue
  for _, text in ipairs(call('ZRANGE', key, 0, most - 1)) do found[#found + 1] = flows.of_member(text) end
  local parked = call('SMEMBERS', life .. 'parked:' .. queue)
  for i = 1, math.min(most, #parked) do found[#found + 1] = flows.named(parked[i]) end
  return found, call('ZCARD', key) + #parked
end
