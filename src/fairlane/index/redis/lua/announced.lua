-- Records that the owners of these jobs have been told the rank the job counts as.
-- KEYS prefix
-- ARGV levels rest: id, rank for each job
--@include entry
for i = 1, #levels, 2 do
  local text = call('HGET', life .. 'jobs', levels[i])
  if text then
    local told = string.char(tonumber(levels[i + 1]))
    text = sub(text, 1, ANNOUNCED_AT - 1) .. told .. sub(text, ANNOUNCED_AT + 1)
    call('HSET', life .. 'jobs', levels[i], text)
  end
end
