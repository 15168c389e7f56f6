-- Proposals that were refused: their slots are free, their jobs are not in line.
-- KEYS prefix
-- ARGV refused rest: tokens
--@include ended
--@include idle
local ended = {}
for i, token in ipairs(refused) do ended[i] = {token = token, actual = 0, kept = {}, refused = true} end
let_go(ended)
flows.save()
idle.wake(#refused)
