-- The circuit breaker that counts failures of this region, or of a service without one: {jobs of the
-- streak, closed until, delay, probe}.
-- KEYS prefix
-- ARGV service text
-- ARGV region text: or ""
--@include circuit_breakers
local keys = gates.keys(service, region ~= '' and region or nil)
local gate = gates.get(keys[#keys])
return {gate.failed, gate.closed_until, gate.delay, gate.probe}
