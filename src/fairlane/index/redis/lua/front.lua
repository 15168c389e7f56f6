-- The first waiting jobs of this service, in the order in which they would start: {id, encoded entry, kind of
-- its share, level, since when it ages, 1 if it goes first because its model is loaded, jobs in its flow,
-- 1 if it is blocked} for each.
-- KEYS prefix
-- ARGV service text
-- ARGV most number
-- ARGV now number
--@include delayed_jobs
--@include claim_preview
waiting.move_due(now)
if state.loading then return {} end
local found = preview.front(service_named(service), most, nil, now)
for i, each in ipairs(found) do
  local entry = each[1]
  found[i] = {entry.id, entry.text, each[2], each[3], each[4], each[5] and 1 or 0, each[6], each[7] and 1 or 0}
end
return found
