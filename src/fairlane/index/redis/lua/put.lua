-- Queues each entry, or delays it until it is ready. Entries of which the index knows the same or a
-- newer revision are ignored. Wakes workers that can run them.
-- KEYS prefix
-- ARGV now number
-- ARGV numbers text: for each job the number of its encoded entry
-- ARGV words rest: encoded entries, then ids
--@include put
put_entries(numbers, words, now)
