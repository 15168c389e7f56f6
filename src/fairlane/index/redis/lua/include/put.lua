--@include arrivals
--@include idle_workers
-- Each of those that were sent is in line at its place, unless the index knows the same or a newer rev.
local function put_entries(numbers, words, now)
  local ids, said = news.read(numbers, words)
  local revs, texts = news.known(ids)
  local heard, came, someone_sleeps = {}, {}, idle.at(1)
  for i, id in ipairs(ids) do
    local its = said[i]
    if its.rev > revs[i] then
      if texts[i] or came[id] then -- it goes before it comes: so may its user, for a moment
        news.enter()
        news.remove(id)
      end
      came[id] = true
      news.add(id, its, now)
      if someone_sleeps then heard[#heard + 1] = read_entry(id, its.text) end
    end
  end
  news.enter()
  flows.save()
  idle.wake_for(heard, now)
end
