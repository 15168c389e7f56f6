-- The circuit breaker of this region, or of the service without a region: {jobs of the failure streak,
-- closed until, delay, probe}.
-- KEYS prefix
-- ARGV service text
-- ARGV region text: or ""
--@include circuit_breakers
local keys = breakers.keys(service, region ~= '' and region or nil)
local breaker = breakers.get(keys[#keys])
return {breaker.failed, breaker.open_until, breaker.delay, breaker.probe}
