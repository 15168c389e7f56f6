-- One page of everything that waits: {cursor, {id, text, ...}}.
-- KEYS prefix
-- ARGV cursor text
-- ARGV page number
--@include state
return call('HSCAN', life .. 'jobs', cursor, 'COUNT', page)
