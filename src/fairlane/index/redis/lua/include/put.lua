--@include arrivals
--@include idle_workers
-- Queues or delays each entry that was sent, unless the index knows the same or a newer revision.
local function put_entries(numbers, words, now)
  local ids, said = news.read(numbers, words)
  local revs, texts = news.known(ids)
  local added, seen, any_idle = {}, {}, idle.at(1)
  for i, id in ipairs(ids) do
    local its = said[i]
    if its.rev > revs[i] then
      if texts[i] or seen[id] then -- replaced by removing first: its user may be without jobs for a moment
        news.enter()
        news.remove(id)
      end
      seen[id] = true
      news.add(id, its, now)
      if any_idle then added[#added + 1] = read_entry(id, its.text) end
    end
  end
  news.enter()
  flows.save()
  idle.wake_for(added, now)
end
