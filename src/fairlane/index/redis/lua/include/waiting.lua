--@include desk
-- Those who wait for their time.
local waiting = {}
local DUE_A_CLAIM = 128

function waiting.count_delayed(entry, by)
  local key, field = life .. 'delayed', entry.spec.lane .. '|' .. entry.spec.rank
  if call('HINCRBY', key, field, by) <= 0 then call('HDEL', key, field) end
end

-- Those whose time has come step into line.
function waiting.move_due(now)
  if state.loading then return end
  local due = call('ZRANGEBYSCORE', life .. 'delays', '-inf', now, 'LIMIT', 0, DUE_A_CLAIM)
  if #due == 0 then return end
  call('ZREM', life .. 'delays', unpack(due))
  local entries = {}
  for i, text in ipairs(values_of(life .. 'jobs', due)) do
    if text then
      local entry = read_entry(due[i], text)
      waiting.count_delayed(entry, -1)
      desk.ensure(entry.spec.service)
      entries[#entries + 1] = entry
    end
  end
  desk.enter(entries)
  flows.save()
end
