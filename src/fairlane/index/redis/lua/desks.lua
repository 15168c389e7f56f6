-- The services the index remembers anything of, after it has forgotten the idle workers of processes
-- that are gone.
-- KEYS prefix
--@include idle
idle.all()
return desk.all()
