-- The leases of messages that workers hold unacknowledged, one step of HSCAN.
-- args: hash key, cursor, step
-- returns: cursor, leases
-- cost: O(step)
local answer, found = redis.call('HSCAN', ARGV[1], ARGV[2], 'COUNT', ARGV[3]), {}
for index = 2, #answer[2], 2 do
  local message = answer[2][index]
  local queue = string.match(message, '"([^"]*)"%]$') or ''
  local lease = string.match(message, '"fairlane_lease": ?"([^"]+)"')
  if not lease then
    local id = string.match(message, '"id": ?"([^"]+)"')
    lease = id and (queue .. '|task:' .. id)
  end
  if lease then found[#found + 1] = lease end
end
return {answer[1], found}
