-- The services answered these calls, well or badly: they are not sick.
-- KEYS prefix
-- ARGV calls rest: service, region or "", token in turn
if redis.call('EXISTS', prefix .. 'gates') == 0 then return end
--@include circuit_breakers
--@include idle_workers
local opened = false
for i = 1, #calls, 3 do
  local region = calls[i + 1] ~= '' and calls[i + 1] or nil
  opened = gates.answered(calls[i], region, calls[i + 2]) or opened
end
if opened then idle.wake(nil) end
