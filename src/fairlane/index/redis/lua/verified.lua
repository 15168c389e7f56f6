-- Records that the ledger confirmed the leases of these tokens.
-- KEYS prefix
-- ARGV now number
-- ARGV running rest: tokens
--@include keys
for i, known in ipairs(values_of(life .. 'held', running)) do
  if known then
    call('SADD', life .. 'verified', running[i])
    call('ZADD', life .. 'seen', now, running[i])
  end
end
