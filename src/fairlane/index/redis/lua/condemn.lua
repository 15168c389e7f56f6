-- The present life is over, if it is this one or none is named: whoever looks next finds none and
-- builds it anew.
-- KEYS prefix
-- ARGV epoch text
local meta = prefix .. 'meta'
if epoch == '' or redis.call('HGET', meta, 'epoch') == epoch then redis.call('DEL', meta) end
