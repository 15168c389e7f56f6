-- The estimated queue positions of those of these jobs that wait: {job, {position, level, since, ahead,
-- behind own, reasons}} for each.
-- KEYS prefix
-- ARGV now number
-- ARGV jobs rest
--@include delayed_jobs
--@include position
waiting.move_due(now)
local answer = {}
standing.looked_at = FEW_FLOWS_EXAMINED
if state.loading then return answer end
for _, job in ipairs(jobs) do
  local found = standing.estimate(job, now)
  if found then answer[#answer + 1] = {job, found} end
end
return answer
