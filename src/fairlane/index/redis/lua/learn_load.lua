-- A worker took this long to load the model: a moving average for it and for its service. The least
-- recently updated of too many are forgotten.
-- KEYS prefix
-- ARGV service text
-- ARGV model text
-- ARGV duration number
--@include state
local loads, order = prefix .. 'loads', prefix .. 'loads_order'
local fields = model == '' and {service .. '|'} or {service .. '|' .. model, service .. '|'}
for _, field in ipairs(fields) do
  local old = tonumber(call('HGET', loads, field) or nil)
  local new = old and old + floor_div((duration - old) * ALPHA_THOUSANDTHS, 1000) or duration
  call('HSET', loads, field, whole(new))
  call('ZADD', order, next_number(), field)
end
while call('HLEN', loads) > MAX_AVERAGES do
  call('HDEL', loads, call('ZPOPMIN', order)[1])
end
