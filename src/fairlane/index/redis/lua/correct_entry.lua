-- Replaces the waiting entry `seen` by the ledger's, or removes it, whatever the revisions are. Does
-- nothing if the index has a different entry by now.
-- KEYS prefix
-- ARGV job text: its id
-- ARGV seen text: the encoded entry to replace
-- ARGV now number
-- ARGV numbers text: the number of its encoded entry
-- ARGV words rest: encoded entry and id, or nothing to remove the job
--@include put
local known = call('HGET', life .. 'jobs', job)
if not known or known == seen then
  news.remove(job)
  if tonumber(call('HGET', life .. 'held_revs', job) or -1) == rev_of(seen) then
    call('HDEL', life .. 'held_revs', job)
  end
  put_entries(numbers, words, now)
end
