-- A page of jobs that wait, unless something newer has been heard of them meanwhile.
-- KEYS prefix
-- ARGV epoch text: pages of another one are ignored
-- ARGV entries rest: id, text in turn
--@include news
if epoch ~= state.epoch or not state.loading then return end
local ids, revs = news.known(entries)
for i, id in ipairs(ids) do
  local text = entries[2 * i]
  if rev_of(text) > revs[i] then news.add(id, text) end
end
later.run()
