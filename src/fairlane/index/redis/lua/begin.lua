-- A new life: empty and loading. The keys of the old one are left for the caller to remove. Answers
-- the number of the new life.
-- KEYS prefix
-- ARGV epoch text
-- ARGV rules text: tiers and the default task, as kept
-- ARGV services json: the text of each service by its name
-- ARGV limits json: [pool, limit, window] each
--@include pools
local number = call('HINCRBY', prefix .. 'meta', 'life', 1)
call('HSET', prefix .. 'meta', 'epoch', epoch, 'loading', '1', 'resumed', '0')
life, pools.known = prefix .. number .. ':', {}
call('SET', prefix .. 'settings', rules)
call('DEL', prefix .. 'services')
for name, text in pairs(services) do call('HSET', prefix .. 'services', name, text) end
pools.configure(limits)
return number
