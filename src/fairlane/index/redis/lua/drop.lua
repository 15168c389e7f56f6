-- Proposals that were refused: their slots are free, their jobs are not in line.
-- KEYS prefix
-- ARGV refused json: tokens
--@include held
--@include idle
for _, token in ipairs(refused) do held.let_go(token, nil, {}, true) end
idle.wake(#refused)
accounts.save()
