-- Discards proposals that the ledger refused: frees their slots. Their jobs are not queued again.
-- KEYS prefix
-- ARGV refused rest: tokens
--@include release
--@include idle_workers
local actual = {}
for i = 1, #refused do actual[i] = 0 end
release_leases(refused, actual, {}, true, {})
flows.save()
idle.wake(#refused)
