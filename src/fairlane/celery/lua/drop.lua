-- Drops pending leases that have no message, unless they changed since they were looked at.
-- args: pairs of lease and the score it had
-- returns: how many were dropped
-- cost: O(leases)
local dropped = 0
for index = 1, #ARGV, 2 do
  local queue, nonce = split_lease(ARGV[index])
  local score = redis.call('ZSCORE', pending_of(queue), nonce)
  if score and tonumber(score) == tonumber(ARGV[index + 1]) then
    release_lease(queue, nonce)
    dropped = dropped + 1
  end
end
return dropped
