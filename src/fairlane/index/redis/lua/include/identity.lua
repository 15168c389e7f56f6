--@include state
-- Which server this is. Another one, or the same one started again, has another name.
local function identity()
  return match(call('INFO', 'server'), 'run_id:(%x+)') or 'unknown'
end
