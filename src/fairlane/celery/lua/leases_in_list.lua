-- The leases of the messages in a part of a broker list. A message without a lease header is named by
-- its task id.
-- args: list key, queue, first index, last index
-- returns: leases
-- cost: O(last - first)
local found = {}
for _, message in ipairs(redis.call('LRANGE', ARGV[1], ARGV[3], ARGV[4])) do
  local lease = string.match(message, '"fairlane_lease": ?"([^"]+)"')
  if not lease then
    local id = string.match(message, '"id": ?"([^"]+)"')
    lease = id and (ARGV[2] .. '|task:' .. id)
  end
  found[#found + 1] = lease or ''
end
return found
