-- The services the index remembers anything of, after it has forgotten the idle workers of processes
-- that are gone.
-- KEYS prefix
--@include idle_workers
local i = 1
while idle.at(i) do i = i + 1 end
return service_queue.all()
