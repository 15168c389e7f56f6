-- Proposals that were refused: their slots are free, their jobs are not in line.
-- KEYS prefix
-- ARGV refused rest: tokens
--@include settled
--@include idle_workers
local actual = {}
for i = 1, #refused do actual[i] = 0 end
let_go(refused, actual, {}, true)
flows.save()
idle.wake(#refused)
