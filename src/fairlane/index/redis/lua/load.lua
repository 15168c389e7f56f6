-- A page of live jobs, unless something newer has been heard of them meanwhile.
-- KEYS prefix
-- ARGV epoch text: pages of another one are ignored
-- ARGV entries json: [id, text] each
-- ARGV running json: [token, id, text, slots, at] each
--@include held
if epoch ~= state.epoch then return end
for _, each in ipairs(entries) do
  local entry = read_entry(each[1], each[2])
  if waiting.is_news(entry.id, entry.rev) then waiting.load(entry) end
end
for _, each in ipairs(running) do
  local token, id, text, slots, at = each[1], each[2], each[3], each[4], each[5]
  if call('SISMEMBER', life .. 'freed', token) == 0 then
    held.file(token, id, text, slots, at, read_entry(id, text).rev)
  end
end
