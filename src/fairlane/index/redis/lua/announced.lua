-- The owners of these jobs have been told the rank they count as: the last value of an entry.
-- KEYS prefix
-- ARGV levels json: [id, rank] each
--@include state
for _, each in ipairs(levels) do
  local text = call('HGET', life .. 'jobs', each[1])
  if text then
    call('HSET', life .. 'jobs', each[1], (string.gsub(text, '%d+%]$', whole(each[2]) .. ']')))
  end
end
