-- Counts a failed call in the circuit breaker of the region, or of the service without a region.
-- Answers {jobs of the failure streak, closed until, delay, probe, 1 if it is the service's fault, jobs
-- that get their attempt back}.
-- KEYS prefix
-- ARGV failing json: [service, region or null, token]
-- ARGV job text
-- ARGV now number
-- ARGV retry_after number
--@include circuit_breakers
local region = failing[2] ~= cjson.null and failing[2] or nil
local keys = breakers.keys(failing[1], region)
local key = keys[#keys]
local breaker, at_fault, attempts_returned = breakers.failed(breakers.get(key), failing[3], job, now, retry_after)
breakers.set(key, breaker)
return {breaker.failed, breaker.open_until, breaker.delay, breaker.probe, at_fault and 1 or 0, attempts_returned}
