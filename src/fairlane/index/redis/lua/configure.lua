-- Limits and rules from now on, unless newer ones are known. What is held stays held. Where other
-- rules of order hold, everybody lines up anew; so many that others would wait for it do so in a new
-- life.
-- KEYS prefix
-- ARGV number number: of these settings
-- ARGV rules text: tiers and the default task, as kept
-- ARGV services json: the text of each service by its name
-- ARGV limits json: [pool, limit, window] each
--@include reorder
--@include idle_workers
local LINED_UP = 2000 -- the most that line up anew in one call
if number < tonumber(call('HGET', prefix .. 'meta', 'settings') or 0) then return end
call('HSET', prefix .. 'meta', 'settings', number)
local before_that = {}
for _, name in ipairs(service_queue.all()) do before_that[name] = service_named(name) end
call('SET', prefix .. 'settings', rules)
call('DEL', prefix .. 'services')
for name, text in pairs(services) do call('HSET', prefix .. 'services', name, text) end
pools.configure(limits)
settings.services, settings.tiers = {}, nil
for _, name in ipairs(service_queue.all()) do
  local old, new = before_that[name], service_named(name)
  if old.fair ~= new.fair or old.affinity ~= new.affinity then
    if call('HLEN', life .. 'jobs') + call('HLEN', life .. 'held') > LINED_UP then
      call('DEL', prefix .. 'meta')
      return
    end
    reorder(old, new)
  end
end
places.forget()
idle.wake(nil)
