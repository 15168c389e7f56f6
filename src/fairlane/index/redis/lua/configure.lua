-- Applies settings, unless newer ones are stored. Held entries stay held. Services whose fairness or
-- affinity changed are reordered. If that would block Redis for too long, the index is rebuilt instead.
-- KEYS prefix
-- ARGV number number: the version of these settings
-- ARGV rules text: tiers and task defaults, as stored
-- ARGV services json: the encoded settings of each service by name
-- ARGV limits json: [pool, limit, window in microseconds] for each pool
--@include reorder
--@include idle_workers
local MAX_REORDERED = 2000 -- the most jobs that one call reorders
if number < tonumber(call('HGET', prefix .. 'meta', 'settings') or 0) then return end
call('HSET', prefix .. 'meta', 'settings', number)
local old_services = {}
for _, name in ipairs(service_queue.all()) do old_services[name] = service_named(name) end
call('SET', prefix .. 'settings', rules)
call('DEL', prefix .. 'services')
for name, text in pairs(services) do call('HSET', prefix .. 'services', name, text) end
pools.configure(limits)
settings.services, settings.tiers = {}, nil
for _, name in ipairs(service_queue.all()) do
  local old, new = old_services[name], service_named(name)
  if old.fair ~= new.fair or old.affinity ~= new.affinity then
    if call('HLEN', life .. 'jobs') + call('HLEN', life .. 'held') > MAX_REORDERED then
      call('DEL', prefix .. 'meta')
      return
    end
    reorder(old, new)
  end
end
places.forget()
idle.wake(nil)
