-- These leases have ended: slots free except those kept, counters corrected, workers woken. Services
-- that answered their calls, well or badly, are not sick.
-- KEYS prefix
-- ARGV answered json: {service, region or ""} each
-- ARGV freed rest: token, what it cost or "", [pool, n, until] kept each as json or "", number of the answer or "" in turn
--@include settled
--@include idle_workers
local tokens, actual, kept, opened = {}, {}, {}, false
for i = 1, #freed, 4 do
  local n, keeps, by = #tokens + 1, freed[i + 2], answered[tonumber(freed[i + 3])]
  tokens[n], actual[n] = freed[i], tonumber(freed[i + 1]) or false
  if keeps ~= '' then kept[n] = cjson.decode(keeps) end
  if by and gates.any() then
    opened = gates.answered(by[1], by[2] ~= '' and by[2] or nil, freed[i]) or opened
  end
end
let_go(tokens, actual, kept, false)
flows.save()
idle.wake(not opened and #tokens or nil)
