-- Answers the version of the settings if the index accepts claims under this epoch, else nil. It writes
-- a key, so that it fails on a read-only replica.
-- KEYS prefix
-- ARGV epoch text
--@include keys
call('HSET', prefix .. 'meta', 'asked', epoch)
local built_on, number = unpack(call('HMGET', prefix .. 'meta', 'server', 'settings'))
local complete = call('EXISTS', life .. 'marker') == 1
if state.epoch ~= epoch or state.loading or built_on ~= identity() or not complete then
  return false
end
return tonumber(number)
