-- Updates the moving averages of load and work times, for each model and for its service.
-- KEYS prefix
-- ARGV samples json: [service, model, load time or null, work time or null] for each, in microseconds
--@include model_times
for _, sample in ipairs(samples) do
  local service, model, load, work = sample[1], sample[2], sample[3], sample[4]
  model_times.learn(service .. '|' .. model, load, work)
  if model ~= '' then model_times.learn(service .. '|', load, work) end
end
