-- The services that have data in the index. Also removes the idle workers of dead processes.
-- KEYS prefix
--@include idle_workers
local i = 1
while idle.at(i) do i = i + 1 end
return service_queue.all()
