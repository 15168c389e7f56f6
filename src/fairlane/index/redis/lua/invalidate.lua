-- Invalidates a damaged index, so that the next process that checks it starts a rebuild. Does nothing if
-- another build is present than the named one. Keys that survive rebuilds are deleted too: they may be
-- the damaged ones.
-- KEYS prefix
-- ARGV epoch text: of the damaged build, or "" for any
local known = redis.pcall('HGET', prefix .. 'meta', 'epoch')
if epoch == '' or known == epoch or type(known) == 'table' then
  for _, name in ipairs({'meta', 'gates', 'loads', 'works', 'load_counts', 'loads_order', 'used_models', 'idle', 'idlers'}) do
    redis.call('DEL', prefix .. name)
  end
end
