-- What the index knows of these jobs: {rev under which it is held or -1, text or false} each.
-- KEYS prefix
-- ARGV jobs rest: ids
--@include state
local texts, revs, found = values_of(life .. 'jobs', jobs), values_of(life .. 'held_revs', jobs), {}
for i, text in ipairs(texts) do found[i] = {tonumber(revs[i] or -1), text} end
return found
