-- Every call in which this worker waits is rung for: those filed under its id, or its id and "#".
-- KEYS prefix
-- ARGV worker text: its id
--@include idle
for _, each in ipairs(idle.all()) do
  if each.id == worker or sub(each.id, 1, #worker + 1) == worker .. '#' then idle.ring(each) end
end
