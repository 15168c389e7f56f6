-- Held entries that nobody has verified since then, oldest first: {token, id, text, slots, at} each.
-- KEYS prefix
-- ARGV since number
-- ARGV limit number
--@include held
local tokens, old = call('ZRANGEBYSCORE', life .. 'seen', '-inf', '(' .. whole(since)), {}
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
