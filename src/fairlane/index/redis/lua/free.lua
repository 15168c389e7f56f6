-- These leases have ended: slots free except those kept, counters corrected, workers woken. Services
-- that answered their calls, well or badly, are not sick.
-- KEYS prefix
-- ARGV answered json: {service, region or ""} each
-- ARGV freed rest: token, what it cost or "", [pool, n, until] kept each as json or "", number of the answer or "" in turn
--@include release
--@include idle_workers
local tokens, actual, kept, goes_on = {}, {}, {}, false
for i = 1, #freed, 4 do
  local n, keeps, by = #tokens + 1, freed[i + 2], answered[tonumber(freed[i + 3])]
  tokens[n], actual[n] = freed[i], tonumber(freed[i + 1]) or false
  if keeps ~= '' then kept[n] = cjson.decode(keeps) end
  if by and breakers.any() then
    goes_on = breakers.answered(by[1], by[2] ~= '' and by[2] or nil, freed[i]) or goes_on
  end
end
release_leases(tokens, actual, kept, false)
flows.save()
idle.wake(not goes_on and #tokens or nil)
