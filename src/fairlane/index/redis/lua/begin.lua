-- A new life: empty and loading. The keys of the old one are left for the caller to remove.
-- KEYS prefix
-- ARGV epoch text
-- ARGV number number: of the settings
-- ARGV rules text: tiers and the default task, as kept
-- ARGV services json: the text of each service by its name
-- ARGV limits json: [pool, limit, window] each
--@include pools
--@include state
local name = '@' .. sub(epoch, 1, 8) .. next_number()
call('HSET', prefix .. 'meta', 'epoch', epoch, 'loading', '1', 'resumed', '0', 'life', name,
  'server', identity(), 'settings', number)
life, pools.known = prefix .. name .. ':', {}
call('SET', life .. 'marker', '1')
call('SET', prefix .. 'settings', rules)
call('DEL', prefix .. 'services')
for service, text in pairs(services) do call('HSET', prefix .. 'services', service, text) end
pools.configure(limits)
