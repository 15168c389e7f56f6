-- The service did not answer: counted at its region if it has one. Answers {jobs of the streak,
-- closed until, delay, probe, 1 if it is the service's fault, jobs forgiven}.
-- KEYS prefix
-- ARGV failing json: [service, region or null, token]
-- ARGV job text
-- ARGV now number
-- ARGV retry_after number
--@include circuit_breakers
local region = failing[2] ~= cjson.null and failing[2] or nil
local keys = gates.keys(failing[1], region)
local key = keys[#keys]
local gate, at_fault, forgiven = gates.failed(gates.get(key), failing[3], job, now, retry_after)
gates.set(key, gate)
return {gate.failed, gate.closed_until, gate.delay, gate.probe, at_fault and 1 or 0, forgiven}
