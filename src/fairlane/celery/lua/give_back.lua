-- Gives leases back that were reserved and not used.
-- args: leases
-- cost: O(leases)
for _, lease in ipairs(ARGV) do release_lease(split_lease(lease)) end
