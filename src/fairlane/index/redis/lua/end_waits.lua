-- Ends all pending waits of this worker: those recorded under its id, or under its id and "#".
-- KEYS prefix
-- ARGV worker text: its id
--@include idle_workers
local i = 1
local each = idle.at(i)
while each do
  if each.id == worker or sub(each.id, 1, #worker + 1) == worker .. '#' then
    idle.wake_at(i)
  else
    i = i + 1
  end
  each = idle.at(i)
end
