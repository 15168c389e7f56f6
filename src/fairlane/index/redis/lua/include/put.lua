--@include news
--@include idle
-- Each of these, id and text in turn, is in line at its place, unless the index knows the same or a
-- newer rev.
local function put_entries(flat, now)
  local ids, revs, texts = news.known(flat)
  local since, heard, someone_sleeps = {}, {}, idle.at(1)
  for i, id in ipairs(ids) do
    local text, earlier = flat[2 * i], since[id]
    local rev = rev_of(text)
    if rev > revs[i] and (not earlier or rev > earlier) then
      if texts[i] or earlier then -- it goes before it comes: so may its user, for a moment
        news.enter()
        news.remove(id)
      end
      since[id] = rev
      news.add(id, text, now)
      if someone_sleeps then heard[#heard + 1] = read_entry(id, text) end
    end
  end
  news.enter()
  flows.save()
  idle.wake_for(heard, now)
end
