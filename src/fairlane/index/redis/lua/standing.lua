-- The queue position of the job: {position, level, since, ahead, behind own, reasons}, or false if the
-- index has no such waiting job.
-- KEYS prefix
-- ARGV job text
-- ARGV now number
--@include delayed_jobs
--@include position
waiting.move_due(now)
if state.loading then return false end
local entry = waiting_entry(job)
if not entry then return false end
local flow = flows.of(entry)
local at_limit = preview.is_at_limit(flow)
if call('ZSCORE', life .. 'delays', job) then
  local reasons = standing.reasons(entry, at_limit, now, {'delayed'})
  return {0, entry.spec.rank, entry.score, 0, 0, reasons}
end
local own_before = call('ZRANK', flow.line, job)
local since = entry.score
flows.look(flow)
if flow.place.fair then since = own_before == 0 and flows.since(flow) or now end
local reached = entry.spec.rank
if entry.spec.band == TIER then reached = level(entry.spec.rank, now - since) end
local ahead = standing.jobs_before(entry, flow, reached, own_before)
local behind_own = flow.place.fair and own_before or 0
local estimated = ahead + 1
if at_limit then
  estimated = standing.in_line(entry.spec.service) - call('ZCARD', flow.line) + own_before + 1
end
local reasons = standing.reasons(entry, at_limit, now, {})
local position = standing.position(entry, estimated, reached, now - since, now)
return {position, reached, since, ahead, behind_own, reasons}
