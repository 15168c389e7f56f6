--@include news
--@include idle
-- Each of these entries is in line at its place, unless the index knows the same or a newer rev.
local function put_entries(entries, now)
  local ids, fresh, heard = {}, {}, {}
  for i, entry in ipairs(entries) do ids[i] = entry.id end
  local revs, texts = news.known_revs(ids)
  local since = {}
  for i, entry in ipairs(entries) do
    local id = entry.id
    if entry.rev > math.max(revs[i], since[id] or 0) then
      if texts[i] or since[id] then -- it goes before it comes: so may its user, for a moment
        news.add(fresh, now)
        fresh = {}
        news.remove(id)
      end
      since[id], fresh[#fresh + 1], heard[#heard + 1] = entry.rev, entry, entry
    end
  end
  news.add(fresh, now)
  flows.save()
  idle.wake_for(heard, now)
end

-- (id, text) in turn, as entries.
local function read_entries(flat)
  local found = {}
  for i = 1, #flat, 2 do found[#found + 1] = read_entry(flat[i], flat[i + 1]) end
  return found
end
