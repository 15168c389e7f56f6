-- Ends leases: frees their slots except those kept, corrects the fair-share counters and wakes workers.
-- An answer of a service, a result or an error, counts as success for its circuit breaker.
-- KEYS prefix
-- ARGV answered json: {service, region or ""} for each service that answered
-- ARGV freed rest: for each lease its token, actual cost or "", kept slots [pool, n, until] as JSON or "", number in `answered` or ""
--@include release
--@include idle_workers
local tokens, actual, kept, replied, goes_on = {}, {}, {}, {}, false
for i = 1, #freed, 4 do
  local n, keeps, by = #tokens + 1, freed[i + 2], answered[tonumber(freed[i + 3])]
  tokens[n], actual[n], replied[n] = freed[i], tonumber(freed[i + 1]) or false, by ~= nil
  if keeps ~= '' then kept[n] = cjson.decode(keeps) end
  if by and breakers.any() then
    goes_on = breakers.answered(by[1], by[2] ~= '' and by[2] or nil, freed[i]) or goes_on
  end
end
release_leases(tokens, actual, kept, false, replied)
flows.save()
idle.wake(not goes_on and #tokens or nil)
