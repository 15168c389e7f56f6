-- The queue position of the job: {position, level, since, ahead, behind own, reasons}, or false if the
-- index has no such waiting job.
-- KEYS prefix
-- ARGV job text
-- ARGV now number
--@include delayed_jobs
--@include position
waiting.move_due(now)
if state.loading then return false end
local found, entry = standing.estimate(job, now)
if not found then return false end
if found[1] > 0 then found[1] = standing.position(entry, found[1], found[2], now - found[3], now) end
return found
