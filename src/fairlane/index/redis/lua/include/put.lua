--@include waiting
--@include idle
-- Each of these (id, text) is in line at its place, unless the index knows the same or a newer rev.
local function put_entries(entries, now)
  local anybody_idle = call('EXISTS', prefix .. 'idle') == 1
  for _, each in ipairs(entries) do
    local entry = read_entry(each[1], each[2])
    if waiting.is_news(entry.id, entry.rev) then
      waiting.remove(entry.id)
      waiting.add(entry, now)
      if anybody_idle and entry.ready_at <= now then idle.wake_for(entry) end
    end
  end
end
