-- The present life is over, if it is this one, or none is named, or nobody can read which it is: whoever
-- looks next finds none and builds it anew. What outlives lives goes with it: it may be what is damaged.
-- KEYS prefix
-- ARGV epoch text
local known = redis.pcall('HGET', prefix .. 'meta', 'epoch')
if epoch == '' or known == epoch or type(known) == 'table' then
  for _, name in ipairs({'meta', 'gates', 'loads', 'loads_order', 'idle', 'idlers'}) do
    redis.call('DEL', prefix .. name)
  end
end
