-- If the index still shows exactly what was seen, it now shows the truth, whatever the revs say.
-- KEYS prefix
-- ARGV job text: its id
-- ARGV seen text: the text of its entry
-- ARGV now number
-- ARGV numbers text: which text it has
-- ARGV words rest: text and id, or nothing if it does not wait
--@include put
local known = call('HGET', life .. 'jobs', job)
if not known or known == seen then
  news.remove(job)
  if tonumber(call('HGET', life .. 'held_revs', job) or -1) == rev_of(seen) then
    call('HDEL', life .. 'held_revs', job)
  end
  put_entries(numbers, words, now)
end
