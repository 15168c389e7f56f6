--@include keys
-- A loaded model: its name, since when it is loaded, and how many jobs in a row it has served. Nothing is
-- loaded if the name is empty.
local COLD = {model = '', since = 0, streak = 0}

-- The loaded model after a job of this model was started. A job without a model changes nothing.
local function loaded_after(loaded, model, now)
  if model == '' then return loaded end
  if model == loaded.model then
    return {model = model, since = loaded.since, streak = loaded.streak + 1}
  end
  return {model = model, since = now, streak = 1}
end

local function write_loaded(loaded)
  return whole(loaded.since) .. '|' .. whole(loaded.streak) .. '|' .. loaded.model
end

-- A text that no script has written is no model: it costs at most one load.
local function read_loaded(text)
  local since, streak, model = match(text or '', '^(%d+)|(%d+)|(.+)$')
  return since and {model = model, since = tonumber(since), streak = tonumber(streak)} or COLD
end
