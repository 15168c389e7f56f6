--@include held
--@include slots
--@include desk
--@include gates
-- These leases, or what was proposed as such, are over: {token, actual, kept, refused} each.
local function let_go(ended)
  local tokens, ids, revs = {}, {}, {}
  for i, each in ipairs(ended) do tokens[i] = each.token end
  for _, user in ipairs(slots.release(ended)) do flows.unpark(user) end
  if state.loading then with_all('SADD', life .. 'freed', tokens) end
  local over, files = {}, held.all(tokens)
  for i, each in ipairs(ended) do
    if gates.any() then gates.forget_probe(each.token) end
    local was = files[i]
    if was and not over[each.token] then
      each.entry = read_entry(was.id, was.text)
      ids[#ids + 1], over[each.token] = was.id, true
      accounts.want(accounts.book(each.entry.spec.service, each.entry.spec.rank), each.entry.user)
    end
  end
  accounts.fetch()
  for i, rev in ipairs(values_of(life .. 'held_revs', ids)) do revs[ids[i]] = tonumber(rev or -1) end
  local gone = {}
  for _, each in ipairs(ended) do
    local entry = each.entry
    if entry then
      if revs[entry.id] == entry.rev then gone[#gone + 1] = entry.id end
      desk.ended(entry, each.actual)
    end
  end
  with_all('HDEL', life .. 'held', tokens)
  with_all('ZREM', life .. 'seen', tokens)
  with_all('SREM', life .. 'verified', tokens)
  with_all('HDEL', life .. 'held_revs', gone)
end
