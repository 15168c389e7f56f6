-- The ledger says these run under their tokens.
-- KEYS prefix
-- ARGV running json: tokens
-- ARGV now number
--@include state
for _, token in ipairs(running) do
  if call('HEXISTS', life .. 'held', token) == 1 then
    call('SADD', life .. 'verified', token)
    call('ZADD', life .. 'seen', whole(now), token)
  end
end
