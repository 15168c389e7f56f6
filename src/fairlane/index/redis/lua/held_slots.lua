-- The taken slots of these pools: {pool, n, until or 0, token, at, id, encoded entry} for each. Without a held
-- entry of the token, `at` is 0 and id and entry are empty.
-- KEYS prefix
-- ARGV names rest: of the pools
--@include held
local found = {}
for _, pool in ipairs(names) do
  local ends, taken = {}, pairs_of(call('HGETALL', life .. 'slots:' .. pool))
  for _, member in ipairs(call('ZRANGE', life .. 'ends:' .. pool, 0, -1)) do
    local at, n, token = match(member, '^(%d+)|(%d+)|(.*)$')
    ends[n .. '|' .. token] = tonumber(at)
  end
  local numbers, tokens = {}, {}
  for n, token in pairs(taken) do numbers[#numbers + 1], tokens[#tokens + 1] = n, token end
  for i, was in ipairs(held.all(tokens)) do
    local n, token = numbers[i], tokens[i]
    local until_ = ends[n .. '|' .. token] or 0
    found[#found + 1] = {
      pool, tonumber(n), until_, token, was and was.at or 0, was and was.id or '', was and was.text or '',
    }
  end
end
return found
