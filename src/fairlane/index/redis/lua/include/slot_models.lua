--@include pools
--@include loaded_models
-- The models that the slots of called services ran last.
local slot_models = {}

-- Reads the models of a pool's slots, and which numbers are taken: once per claim.
function slot_models.read(pool)
  if pool.models then return end
  pool.models, pool.busy = {}, {}
  for n, text in pairs(pairs_of(call('HGETALL', life .. 'slot_models:' .. pool.name))) do
    pool.models[tonumber(n)] = read_loaded(text)
  end
  for _, n in ipairs(call('HKEYS', life .. 'slots:' .. pool.name)) do pool.busy[tonumber(n)] = true end
  for i = 1, #(pool.taken or {}), 2 do pool.busy[pool.taken[i]] = true end
end

-- The free slot that a job with this model takes: one that has it, one without a model, the one whose model
-- was loaded first. Requires a spare slot.
function slot_models.slot_for(pool, model)
  slot_models.read(pool)
  local best, best_kind, best_since
  for n = 1, pool.limit do
    if not pool.busy[n] then
      local loaded = pool.models[n] or COLD
      local kind = loaded.model == model and 0 or loaded.model == '' and 1 or 2
      if not best or kind < best_kind or (kind == best_kind and loaded.since < best_since) then
        best, best_kind, best_since = n, kind, loaded.since
      end
    end
  end
  return best
end

function slot_models.get(pool, n)
  return pool.models[n] or COLD
end

function slot_models.set(pool, n, loaded)
  pool.models[n] = loaded
  call('HSET', life .. 'slot_models:' .. pool.name, n, write_loaded(loaded))
end
