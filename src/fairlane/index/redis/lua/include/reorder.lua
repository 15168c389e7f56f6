--@include desk
-- Other rules of order at one service: everybody lines up anew.

-- The (score, id) of all in line at this desk, which is cleared away.
local function cleared(service)
  local ids, name = {}, service.name
  for _, queue in ipairs(desk.queues(name)) do
    for _, each in ipairs(flows.all(queue.key)) do
      local flow = flows.named(each[1])
      local line = call('ZRANGE', flow.line, 0, -1, 'WITHSCORES')
      for i = 1, #line, 2 do ids[#ids + 1] = {tonumber(line[i + 1]), line[i]} end
      flows.forget_parked(flow)
      call('DEL', flow.line)
      if flow.model ~= '' then call('DEL', life .. 'warm:' .. queue.key .. '|' .. flow.model) end
    end
    call('DEL', life .. 'fair:' .. queue.key, life .. 'aged:' .. queue.key)
  end
  call('DEL', life .. 'queues:' .. name)
  call('HDEL', life .. 'credits', name)
  accounts.forget(name)
  return ids
end

local function reorder(old, new)
  settings.services[old.name] = old
  local ids = cleared(old)
  settings.services[old.name], flows.known = new, {}
  for _, packed in ipairs(call('HVALS', life .. 'held')) do
    local v = cmsgpack.unpack(packed)
    local entry = read_entry(v[1], v[2])
    if entry.service == new.name and new.fair then
      local account = accounts.get(new.name, entry.rank, entry.user)
      account.running = account.running + 1
    end
  end
  table.sort(ids, function(a, b)
    if a[1] ~= b[1] then return a[1] < b[1] end
    return before(a[2], b[2])
  end)
  for _, each in ipairs(ids) do desk.enter(waiting_entry(each[2])) end
end
