-- Each entry is in line at its place, or waits for its time, unless the index knows the same or a
-- newer rev. Wakes workers that can run it.
-- KEYS prefix
-- ARGV now number
-- ARGV numbers text: which text each has
-- ARGV words rest: texts, then ids
--@include put
put_entries(numbers, words, now)
