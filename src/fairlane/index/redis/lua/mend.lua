-- If the index still shows exactly what was seen, it now shows the truth, whatever the revs say.
-- KEYS prefix
-- ARGV seen json: [id, text]
-- ARGV truth json: [[id, text]], or [] if it does not wait
-- ARGV now number
--@include put
local known = call('HGET', life .. 'jobs', seen[1])
if not known or known == seen[2] then
  waiting.remove(seen[1])
  local rev = read_entry(seen[1], seen[2]).rev
  if tonumber(call('HGET', life .. 'held_revs', seen[1]) or -1) == rev then
    call('HDEL', life .. 'held_revs', seen[1])
  end
  put_entries(truth, now)
  accounts.save()
end
