--@include held
--@include service_queue
--@include pools
-- Reordering of one service after its fairness or affinity changed: all its jobs are queued again.

-- Deletes the queues of this service. Returns the (score, id) of all jobs that were queued.
local function delete_queues(service)
  local ids, name = {}, service.name
  for _, queue in ipairs(service_queue.queues(name)) do
    for _, flow in ipairs(flows.all(queue.key)) do
      local line = call('ZRANGE', flow.line, 0, -1, 'WITHSCORES')
      for i = 1, #line, 2 do ids[#ids + 1] = {tonumber(line[i + 1]), line[i]} end
      flows.forget_parked(flow)
      call('DEL', flow.line)
      local model = flow.place.model
      if model ~= '' then call('DEL', life .. 'warm:' .. queue.key .. '|' .. model) end
    end
    call('DEL', life .. 'fair:' .. queue.key, life .. 'aged:' .. queue.key, life .. 'wanted:' .. queue.key)
  end
  call('DEL', life .. 'queues:' .. name, life .. 'loaded:' .. name)
  call('HDEL', life .. 'credits', name)
  accounts.forget(name)
  return ids
end

local function reorder(old, new)
  settings.services[old.name] = old
  places.forget()
  local ids = delete_queues(old)
  settings.services[old.name] = new
  places.forget()
  for _, token in ipairs(call('HKEYS', life .. 'held')) do
    local was = held.all({token})[1]
    local entry = read_entry(was.id, was.text)
    if entry.spec.service == new.name then service_queue.resume(entry) end
  end
  table.sort(ids, function(a, b)
    if a[1] ~= b[1] then return a[1] < b[1] end
    return before(a[2], b[2])
  end)
  local names = {}
  for i, each in ipairs(ids) do names[i] = each[2] end
  for i, text in ipairs(values_of(life .. 'jobs', names)) do
    local score, _, owner = read_coming(text)
    service_queue.comes(names[i], score, owner)
  end
  service_queue.enter()
  flows.save()
end
