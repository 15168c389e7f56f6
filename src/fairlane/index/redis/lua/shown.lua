-- What the index knows of these jobs: {rev under which it is held or -1, text or false} each.
-- KEYS prefix
-- ARGV jobs json: ids
--@include state
local found = {}
for i, id in ipairs(jobs) do
  local rev = tonumber(call('HGET', life .. 'held_revs', id) or -1)
  found[i] = {rev, call('HGET', life .. 'jobs', id)}
end
return found
