-- Starts a rebuild with an empty index that is loading. The caller removes the keys of the old build.
-- `life` is the key prefix of one build.
-- KEYS prefix
-- ARGV epoch text
-- ARGV number number: the version of the settings
-- ARGV rules text: tiers and task defaults, as stored
-- ARGV services json: the encoded settings of each service by name
-- ARGV limits json: [pool, limit, window in microseconds] for each pool
--@include pools
--@include keys
local name = '@' .. sub(epoch, 1, 8) .. next_number()
call('HSET', prefix .. 'meta', 'epoch', epoch, 'loading', '1', 'resumed', '0', 'life', name,
  'server', identity(), 'settings', number)
life, pools.known = prefix .. name .. ':', {}
call('SET', life .. 'marker', '1')
call('SET', prefix .. 'settings', rules)
call('DEL', prefix .. 'services')
for service, text in pairs(services) do call('HSET', prefix .. 'services', service, text) end
pools.configure(limits)
