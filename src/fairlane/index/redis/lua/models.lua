-- What is known of the models of a service: {for each model that was used last, by completed jobs of this tenant
-- or of any, its service, name, load time, work time, number of loads; the model of the job started last, since
-- when, jobs in a row; for each slot of a called service its pool, number, model, since when, jobs in a row}.
-- KEYS prefix
-- ARGV service text
-- ARGV tenant text: or "" for any
-- ARGV most number
--@include model_times
--@include loaded_models
local last = read_loaded(call('HGET', life .. 'last_models', service))
local slots = {}
for _, pool in ipairs(call('HKEYS', life .. 'limits')) do
  if match(pool, '^[^@]*') == 'svc:' .. service then
    for n, text in pairs(pairs_of(call('HGETALL', life .. 'slot_models:' .. pool))) do
      local loaded = read_loaded(text)
      if loaded.model ~= '' then
        slots[#slots + 1] = {pool, tonumber(n), loaded.model, loaded.since, loaded.streak}
      end
    end
  end
end
return {model_times.recent(service, tenant, most), {last.model, last.since, last.streak}, slots}
