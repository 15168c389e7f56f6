-- The services answered these calls, well or badly: they are not sick.
-- KEYS prefix
-- ARGV calls json: [service, region or null, token] each
--@include gates
--@include idle
if gates.any() then
  local opened = false
  for _, each in ipairs(calls) do
    local region = each[2] ~= cjson.null and each[2] or nil
    opened = gates.answered(each[1], region, each[3]) or opened
  end
  if opened then idle.wake(nil) end
end
