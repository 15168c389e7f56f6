-- The next jobs in the order of service that this worker covers, one for each token, each with all
-- its slots or not at all, filed as held. Without any, the worker is filed as idle.
-- Answers false while loading or under another epoch, else {when to look again, {id, text, slots in
-- turn, as the tokens}}. Asked again with the same tokens it answers the same jobs.
-- KEYS prefix
-- ARGV asking text: the worker, as it is filed
-- ARGV loaded json: {model, since, streak}
-- ARGV now number
-- ARGV epoch text
-- ARGV tokens rest
--@include round
local LOOK_AGAIN = 5000000

local function soonest(a, b)
  if not a or (b and b < a) then return b end
  return a
end

local function look_again_at()
  local due = tonumber(call('ZRANGE', life .. 'delays', 0, 0, 'WITHSCORES')[2] or nil)
  local at = soonest(soonest(due, gates.next_opening(now)), pools.next_end(now))
  return math.max(now, soonest(at, now + LOOK_AGAIN))
end

if state.loading or epoch ~= state.epoch then return false end
if call('HEXISTS', life .. 'held', tokens[1] or '') == 1 then
  local found = {}
  for _, was in ipairs(held.all(tokens)) do
    if not was then break end
    found[#found + 1], found[#found + 2], found[#found + 3] = was.id, was.text, was.slots
  end
  return {now, found}
end
local worker = read_worker(asking)
idle.leave(worker.id)
waiting.move_due(now)
round.begin(worker, loaded, #tokens, now)
for _, token in ipairs(tokens) do
  if not round.next(token) then break end
end
if #round.granted == 0 then idle.file(worker, asking) end
round.save()
return {look_again_at(), round.granted}
