-- Loads one page of waiting jobs. Jobs with a newer recorded change are skipped.
-- KEYS prefix
-- ARGV epoch text: pages of another epoch are ignored
-- ARGV numbers text: for each job the number of its encoded entry
-- ARGV words rest: encoded entries, then ids
--@include arrivals
if epoch ~= state.epoch or not state.loading then return end
local ids, said = news.read(numbers, words)
for i, rev in ipairs(news.known(ids)) do
  if said[i].rev > rev then news.add(ids[i], said[i]) end
end
later.run()
