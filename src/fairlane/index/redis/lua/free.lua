-- These leases have ended: slots free except those kept, counters corrected, workers woken.
-- KEYS prefix
-- ARGV freed rest: token, what it cost or "", [pool, n, until] kept each as json or "" in turn
--@include ended
--@include idle
local ended, NONE = {}, {}
for i = 1, #freed, 3 do
  local kept = freed[i + 2]
  ended[#ended + 1] = {
    token = freed[i], actual = tonumber(freed[i + 1]), kept = kept == '' and NONE or cjson.decode(kept),
  }
end
let_go(ended)
flows.save()
idle.wake(#ended)
