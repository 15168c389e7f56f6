-- The first EXACT_POSITIONS waiting jobs of this service, in the order in which they would start.
-- KEYS prefix
-- ARGV service text
-- ARGV now number
--@include delayed_jobs
--@include claim_preview
waiting.move_due(now)
if state.loading then return {} end
return preview.front(service_named(service), nil, now)
