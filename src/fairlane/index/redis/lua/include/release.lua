--@include held
--@include slots
--@include service_queue
--@include circuit_breakers
-- Ends leases, or proposals that were `refused`. In the order of the tokens: `actual` is the cost or false
-- if unknown, `kept` the slots that stay taken or nil, `answered` whether the service did. If it did not, the
-- process behind its slot is probably a new one, and has no model.
local function release_leases(tokens, actual, kept, refused, answered)
  for _, user in ipairs(slots.release(tokens, kept, refused)) do flows.unpark(user) end
  if state.loading then with_all('SADD', life .. 'freed', tokens) end
  if breakers.any() then
    for _, token in ipairs(tokens) do breakers.forget_probe(token) end
  end
  local ids, revs, costs, specs, users, costed, over = {}, {}, {}, {}, {}, {}, {}
  for i, packed in ipairs(values_of(life .. 'held', tokens)) do
    local token = tokens[i]
    if packed and not over[token] then
      local n = #ids + 1
      ids[n], revs[n], costs[n], specs[n], users[n] = held.job(packed)
      over[token], costed[n] = true, actual[i]
      if specs[n].model ~= '' and not answered[i] then
        for _, slot in ipairs(held.slots(packed)) do
          call('HDEL', life .. 'slot_models:' .. slot[1], slot[2])
        end
      end
      accounts.want(service_queue.book(specs[n]), users[n])
    end
  end
  accounts.fetch()
  local gone = {}
  for n, rev in ipairs(values_of(life .. 'held_revs', ids)) do
    if tonumber(rev or -1) == revs[n] then gone[#gone + 1] = ids[n] end
    service_queue.ended(specs[n], users[n], costs[n], costed[n])
  end
  with_all('HDEL', life .. 'held', tokens)
  with_all('ZREM', life .. 'seen', tokens)
  with_all('SREM', life .. 'verified', tokens)
  with_all('HDEL', life .. 'held_revs', gone)
end
