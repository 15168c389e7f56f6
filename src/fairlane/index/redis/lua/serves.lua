-- Answers the number of the settings if claims under this epoch work here, else nil. Writes, so that
-- a server that only follows another one does not answer.
-- KEYS prefix
-- ARGV epoch text
--@include state
call('HSET', prefix .. 'meta', 'asked', epoch)
local built_on, number = unpack(call('HMGET', prefix .. 'meta', 'server', 'settings'))
local complete = call('EXISTS', life .. 'marker') == 1
if state.epoch ~= epoch or state.loading or built_on ~= identity() or not complete then
  return false
end
return tonumber(number)
