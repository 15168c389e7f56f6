-- The service did not answer: counted at its region if it has one. Answers {jobs of the streak,
-- closed until, delay, probe, 1 if it is the service's fault, jobs forgiven}.
-- KEYS prefix
-- ARGV failing json: [service, region or null, token]
-- ARGV job text
-- ARGV now number
-- ARGV retry_after number
--@include circuit_breakers
local region = failing[2] ~= cjson.null and failing[2] or nil
local keys = breakers.keys(failing[1], region)
local key = keys[#keys]
local breaker, at_fault, forgiven = breakers.failed(breakers.get(key), failing[3], job, now, retry_after)
breakers.set(key, breaker)
return {breaker.failed, breaker.closed_until, breaker.delay, breaker.probe, at_fault and 1 or 0, forgiven}
