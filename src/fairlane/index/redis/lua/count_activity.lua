-- Adds to the counts of a period. They are deleted when they are no longer needed.
-- KEYS prefix
-- ARGV period text
-- ARGV seconds number: until the counts are deleted
-- ARGV counts rest: name, number for each
--@include keys
local key = prefix .. 'activity:' .. period
for i = 1, #counts, 2 do call('HINCRBY', key, counts[i], counts[i + 1]) end
call('EXPIRE', key, seconds)
