-- The counts of periods: for each of these a flat list of name, number.
-- KEYS prefix
-- ARGV periods rest
--@include keys
local found = {}
for i, period in ipairs(periods) do found[i] = call('HGETALL', prefix .. 'activity:' .. period) end
return found
