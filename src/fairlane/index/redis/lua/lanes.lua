-- The lanes of this service in which jobs wait, those of delayed jobs too.
-- KEYS prefix
-- ARGV service text
--@include desk
local found = {}
for _, queue in ipairs(desk.queues(service)) do found[#found + 1] = queue.lane end
for _, field in ipairs(call('HKEYS', life .. 'delayed')) do
  local lane = match(field, '^(.*)|%d+$')
  if match(lane, '^[^|]*') == service then found[#found + 1] = lane end
end
return found
