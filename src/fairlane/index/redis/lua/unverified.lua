-- Held entries that were not verified against the ledger since then, oldest first: {token, id, encoded
-- entry, slots, at} for each.
-- KEYS prefix
-- ARGV since number
-- ARGV limit number
--@include held
local LOOKED_AT = 1500 -- the most entries examined: those not verified for longest
local tokens, old = call(
  'ZRANGEBYSCORE', life .. 'seen', '-inf', '(' .. whole(since), 'LIMIT', 0, LOOKED_AT), {}
for i, was in ipairs(held.all(tokens)) do
  if was then
    was.token = tokens[i]
    old[#old + 1] = was
  end
end
table.sort(old, function(a, b) return a.number < b.number end)
local found = {}
for i = 1, math.min(limit, #old) do
  local each = old[i]
  found[i] = {each.token, each.id, each.text, each.slots, each.at}
end
return found
