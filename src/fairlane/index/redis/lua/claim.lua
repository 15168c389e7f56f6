-- Claims jobs for several workers: for each worker the next jobs that it can run, in queue order, at
-- most one for each of its tokens. A job gets all its slots and becomes a held entry. A worker without
-- a job is recorded as idle. Answers {when to claim again, then for each worker: false while loading or
-- under another epoch, else id, encoded entry, slots, region for each job, in the order of the tokens}. The
-- call is idempotent: with the same tokens it answers the same jobs.
-- KEYS prefix
-- ARGV now number
-- ARGV asked rest: for each worker its kind, id, loaded model, loaded since, jobs with that model, epoch, number of tokens, tokens
--@include claim_round
local function soonest(a, b)
  if not a or (b and b < a) then return b end
  return a
end

local function look_again_at()
  local due = tonumber(call('ZRANGE', life .. 'delays', 0, 0, 'WITHSCORES')[2] or nil)
  local at = soonest(soonest(due, breakers.next_probe_at(now)), pools.next_end(now))
  return math.max(now, soonest(at, now + LOOK_AGAIN_MICROSECONDS))
end

local function as_before(from, to)
  local tokens, found = {}, {}
  for i = from, to do tokens[#tokens + 1] = asked[i] end
  for _, was in ipairs(held.all(tokens)) do
    if not was then break end
    found[#found + 1], found[#found + 2], found[#found + 3], found[#found + 4] = was.id, was.text, was.slots, was.region
  end
  return found
end

local asking, ids, firsts, at = {}, {}, {}, 1
while at <= #asked do
  local n, first = tonumber(asked[at + 6]), at + 7
  local model, since, streak = asked[at + 2], tonumber(asked[at + 3]), tonumber(asked[at + 4])
  asking[#asking + 1] = {
    kind = asked[at], id = asked[at + 1], epoch = asked[at + 5], first = first, last = at + 6 + n,
    loaded = {model = model, since = since, streak = streak},
  }
  ids[#ids + 1], firsts[#firsts + 1] = asked[at + 1], asked[first]
  at, round.asked = at + 7 + n, round.asked + n
end
local answers = {now}
if state.loading then
  for i = 1, #asking do answers[i + 1] = false end
  return answers
end
if with_all('ZREM', prefix .. 'idle', ids) > 0 then with_all('HDEL', prefix .. 'idlers', ids) end
local repeated = values_of(life .. 'held', firsts)
waiting.move_due(now)
round.number = next_number(#asked) - #asked
local without_job = {}
for i, each in ipairs(asking) do
  if each.epoch ~= state.epoch then
    answers[i + 1] = false
  elseif repeated[i] then
    answers[i + 1] = as_before(each.first, each.last)
  else
    round.begin(each.kind, each.loaded, now)
    for at_token = each.first, each.last do
      if not round.next(asked[at_token]) then break end
    end
    if #round.granted == 0 then without_job[#without_job + 1] = each end
    answers[i + 1] = round.granted
  end
end
round.save()
idle.file(without_job)
answers[1] = look_again_at()
return answers
