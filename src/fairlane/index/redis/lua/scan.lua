-- One page of all waiting jobs: {cursor, {id, encoded entry, ...}}.
-- KEYS prefix
-- ARGV cursor text
-- ARGV page number
--@include keys
return call('HSCAN', life .. 'jobs', cursor, 'COUNT', page)
