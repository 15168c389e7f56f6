-- What is known of models: {for each model its service, name, load time, work time, number of loads; for each
-- service its name and the model of the job started last, since when, jobs in a row; for each slot of a
-- called service its pool, number, model, since when, jobs in a row}.
-- KEYS prefix
--@include model_times
--@include loaded_models
local last = {}
for service, text in pairs(pairs_of(call('HGETALL', life .. 'last_models'))) do
  local loaded = read_loaded(text)
  if loaded.model ~= '' then last[#last + 1] = {service, loaded.model, loaded.since, loaded.streak} end
end
local slots = {}
for _, pool in ipairs(call('HKEYS', life .. 'limits')) do
  if sub(pool, 1, 4) == 'svc:' then
    for n, text in pairs(pairs_of(call('HGETALL', life .. 'slot_models:' .. pool))) do
      local loaded = read_loaded(text)
      if loaded.model ~= '' then
        slots[#slots + 1] = {pool, tonumber(n), loaded.model, loaded.since, loaded.streak}
      end
    end
  end
end
return {model_times.all(), last, slots}
