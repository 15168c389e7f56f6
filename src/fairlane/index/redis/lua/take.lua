-- These jobs are not in line, unless the index knows a newer rev. While loading it is remembered.
-- KEYS prefix
-- ARGV jobs json: [id, rev] each
--@include waiting
for _, each in ipairs(jobs) do
  local id, rev = each[1], each[2]
  local known = waiting_entry(id)
  if known and known.rev <= rev then waiting.remove(id) end
  if state.loading and rev > tonumber(call('HGET', life .. 'gone', id) or 0) then
    call('HSET', life .. 'gone', id, whole(rev))
  end
end
accounts.save()
