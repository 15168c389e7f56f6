-- Updates the moving averages of model load times, for the model and for its service. If there are too
-- many averages, the least recently updated ones are deleted.
-- KEYS prefix
-- ARGV service text
-- ARGV model text
-- ARGV duration number: microseconds
--@include keys
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
