-- A page of jobs that wait, unless something newer has been heard of them meanwhile.
-- KEYS prefix
-- ARGV epoch text: pages of another one are ignored
-- ARGV numbers text: which text each has
-- ARGV words rest: texts, then ids
--@include arrivals
if epoch ~= state.epoch or not state.loading then return end
local ids, said = news.read(numbers, words)
for i, rev in ipairs(news.known(ids)) do
  if said[i].rev > rev then news.add(ids[i], said[i]) end
end
later.run()
