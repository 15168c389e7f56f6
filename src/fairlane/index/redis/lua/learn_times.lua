-- Updates the moving averages of load and work times, for each model and for its service.
-- KEYS prefix
-- ARGV samples json: [service, model, load time or null, work time or null, tenant or null] for each; times in
-- microseconds
--@include model_times
for _, sample in ipairs(samples) do
  local service, model, load, work, tenant = sample[1], sample[2], sample[3], sample[4], sample[5]
  model_times.learn(service .. '|' .. model, load, work)
  if model ~= '' then model_times.learn(service .. '|', load, work) end
  if model ~= '' and tenant ~= cjson.null then model_times.used_by(tenant, service .. '|' .. model) end
end
