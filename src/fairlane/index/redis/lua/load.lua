-- A page of jobs that wait, unless something newer has been heard of them meanwhile.
-- KEYS prefix
-- ARGV epoch text: pages of another one are ignored
-- ARGV entries rest: id, text in turn
--@include put
if epoch ~= state.epoch then return end
local ids, heard = {}, {}
for i = 1, #entries, 2 do ids[#ids + 1] = entries[i] end
local revs = news.known_revs(ids)
for i, entry in ipairs(read_entries(entries)) do
  if entry.rev > revs[i] then heard[#heard + 1] = entry end
end
news.load(heard)
