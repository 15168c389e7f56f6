-- These leases have ended: slots free except those kept, counters corrected, workers woken.
-- KEYS prefix
-- ARGV freed json: [token, what it cost or null, [pool, n, until] kept each] each
--@include held
--@include idle
for _, each in ipairs(freed) do
  local actual = each[2]
  if actual == cjson.null then actual = nil end
  held.let_go(each[1], actual, each[3], false)
end
idle.wake(#freed)
accounts.save()
