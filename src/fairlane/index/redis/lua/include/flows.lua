--@include accounts
--@include entry
--@include model_demand
-- Flows: the queue of one user inside a place. A flow without an account is shared by all users, oldest
-- job first. A queue has the waiting jobs of one lane and band. It ranks its flows in sorted sets. Their
-- members are (score of the first job, name of the flow, id of the first job, length of that id) and
-- always exact. Their scores (the counter, or the time from which the first job ages) are lower bounds,
-- which are corrected when they reach the top.
--
-- `head` is the first job: nil = not read yet, false = none. `ranked` is the head that is in the rankings,
-- or false. Changes are written by flows.save().
local flows = {touched = {}, counted = {}, asked = 0}
local MIDDLE = 4503599627370496 -- 2^52: makes every score positive, so that its bytes sort like it
local SPOTS_AHEAD = 64

local function flow_of(place, user)
  local flow = place.flows[user]
  if not flow then
    local name = place.name .. user
    flow = {
      place = place, user = user, name = name, line = life .. 'line:' .. name, popped = 0,
      head = nil, ranked = nil, account = nil, parked = nil, is_touched = nil, coming = nil,
      spots = nil, spot_at = nil, saw_all = nil, texts = nil, -- named here to allocate the table at once
    }
    place.flows[user] = flow
  end
  return flow
end

-- The flow of an entry, or of any table with a spec and a user.
function flows.of(entry)
  local place = entry.spec.place
  return flow_of(place, place.by_user and entry.user or '')
end

function flows.named(name)
  local place, user = match(name, '^([^|]*|[^|]*|[^|]*|[^|]*|[^|]*|)(.*)$')
  return flow_of(places.of_name(place), user)
end

local function touch(flow)
  if not flow.is_touched then
    flow.is_touched = true
    flows.touched[#flows.touched + 1] = flow
  end
end

-- A job in a flow. The rest of its entry is decoded when it is needed.
local function spot(id, score, member, text)
  return {score = score, id = id, member = member, text = text or nil, rev = nil, cost = nil, user = nil, spec = nil}
end

local function first_of(row)
  return row[1] and spot(row[1], tonumber(row[2])) or false
end

-- Reads the first job, and whether the flow is parked.
function flows.look(flow)
  if flow.head == nil then
    flow.head = first_of(call('ZRANGE', flow.line, 0, 0, 'WITHSCORES'))
    flow.ranked = not flows.is_parked(flow) and flow.head
  end
  return flow.head
end

local function book_of(place)
  if not place.book then place.book = accounts.book(place.service, place.rank) end
  return place.book
end

-- The account of the flow's user, or nil if the flow has none.
function flows.account(flow)
  if not flow.account and flow.place.fair then
    flow.account = accounts.get(book_of(flow.place), flow.user)
  end
  return flow.account
end

-- The next accounts.fetch() reads the account of this flow too.
function flows.want_account(flow)
  if not flow.account and flow.place.fair then accounts.want(book_of(flow.place), flow.user) end
end

-- The sort key among the flows of a tier: the user's counter, or the first job's score.
function flows.order(flow)
  local account = flow.account or flows.account(flow)
  return account and account.counter or flow.head.score
end

-- The time from which the first job ages.
function flows.since(flow)
  local account = flow.account or flows.account(flow)
  return account and accounts.ages_from(account, flow.head) or flow.head.score
end

-- --- arrivals and departures ------------------------------------------------------------------------
-- Adds jobs, a flat list of score, id. Returns whether the flow was empty.
function flows.add(flow, coming)
  local head = flows.look(flow)
  local score, id = head and head.score, head and head.id
  for i = 1, #coming, 2 do
    local its_score, its_id = coming[i], coming[i + 1]
    if not id or its_score < score or (its_score == score and before(its_id, id)) then
      score, id = its_score, its_id
    end
  end
  local first = head
  if with_all('ZADD', flow.line, coming) < #coming / 2 then -- the stored flow had one of these jobs already
    first = first_of(call('ZRANGE', flow.line, 0, 0, 'WITHSCORES'))
  elseif not head or id ~= head.id then
    first = spot(id, score)
  end
  if first ~= head then
    flow.head = first
    touch(flow)
  end
  return not head
end

-- Removes the entry. Returns whether it was in the flow.
function flows.remove(flow, entry)
  flows.look(flow)
  if call('ZREM', flow.line, entry.id) == 0 then return false end
  if flow.head.id == entry.id then
    flow.head = first_of(call('ZRANGE', flow.line, 0, 0, 'WITHSCORES'))
    touch(flow)
    if not flow.head then flows.forget_parked(flow) end
  end
  return true
end

-- The first job with its decoded entry: rev, cost, user and spec.
function flows.known_head(flow)
  local head = flow.head
  if not head.spec then
    local text, user_at, _ = head.text or call('HGET', life .. 'jobs', head.id)
    head.rev, _, _, head.cost, head.spec, user_at = read_text(text, 1)
    head.text, head.user = text, sub(text, user_at)
  end
  return head
end

-- The number of jobs that a claim hands out from one flow of this place if all flows are served alike.
local function share_of_a_flow(place)
  if not place.share then
    local among = math.max(1, call('ZCARD', life .. 'fair:' .. place.queue))
    place.share = math.max(1, math.min(SPOTS_AHEAD, math.ceil(flows.asked / among)))
  end
  return place.share
end

-- Reads the next jobs of the flow and their entries: as many as will probably be needed.
local function look_behind(flow)
  local n = flow.spots and math.min(SPOTS_AHEAD, #flow.spots) or share_of_a_flow(flow.place)
  local spots = call('ZRANGE', flow.line, flow.popped, flow.popped + n - 1, 'WITHSCORES')
  flow.spots, flow.saw_all, flow.texts = spots, #spots < 2 * n, nil
  if #spots > 2 then
    local ids = {}
    for i = 1, #spots, 2 do ids[#ids + 1] = spots[i] end
    flow.texts = values_of(life .. 'jobs', ids)
  end
  return spots
end

-- The first job was handed out: move to the next one.
function flows.advance(flow)
  flow.popped = flow.popped + 1
  local spots, at = flow.spots, (flow.spot_at or -1) + 2
  if not spots or (at > #spots and not flow.saw_all) then spots, at = look_behind(flow), 1 end
  flow.spot_at = at
  local id, texts = spots[at], flow.texts
  flow.head = id and spot(id, tonumber(spots[at + 1]), nil, texts and texts[(at + 1) / 2]) or false
  touch(flow)
  if not id then
    wanted.leaves(flow)
    flows.forget_parked(flow)
  end
end

-- Adds n to the number of waiting jobs of this place.
function flows.count(place, n)
  if not place.more then
    place.more, flows.counted[#flows.counted + 1] = 0, place
  end
  place.more = place.more + n
end

-- --- rankings -----------------------------------------------------------------------------------------
-- The prefix of this flow's members for a first job with this score.
function flows.member_begins(flow, score)
  return struct.pack('>d', score + MIDDLE) .. flow.name
end

local function member(flow, head)
  if not head.member then
    local id = head.id
    head.member = struct.pack('>d', head.score + MIDDLE) .. flow.name .. '\0' .. id
      .. struct.pack('>H', #id)
  end
  return head.member
end

-- The flow of a ranking member. `place` is a guess that makes it faster. Unless the flow was read before,
-- its head is decoded from the member.
function flows.of_member(text, place)
  local id_at = #text - 1 - struct.unpack('>H', text, #text - 1)
  local begins = place and place.name or ''
  local flow
  if place and sub(text, 9, 8 + #begins) == begins then
    flow = flow_of(place, sub(text, 9 + #begins, id_at - 2))
  else
    flow = flows.named(sub(text, 9, id_at - 2))
  end
  if flow.head == nil then
    local score = sound((struct.unpack('>d', text))) - MIDDLE
    flow.head = spot(sub(text, id_at, -3), score, text)
    flow.ranked = flow.head
  end
  return flow
end

-- The pending writes to the rankings of a place: removals before additions.
local function rankings_of(place)
  local found = place.rankings
  if not found then
    local fair, aged = life .. 'fair:' .. place.queue, life .. 'aged:' .. place.queue
    local warm = life .. 'warm:' .. place.queue .. '|' .. place.model
    found = {fair_out = later.list('ZREM', fair), fair_in = later.list('ZADD', fair)}
    if place.fair then
      found.aged_out, found.aged_in = later.list('ZREM', aged), later.list('ZADD', aged)
    end
    if place.model ~= '' then
      found.warm_out, found.warm_in, found.warm = later.list('ZREM', warm), later.list('ZADD', warm), warm
    end
    place.rankings = found
  end
  return found
end

local function unrank(flow, head)
  local lists, text = rankings_of(flow.place), member(flow, head)
  local fair, aged, warm = lists.fair_out, lists.aged_out, lists.warm_out
  fair[#fair + 1] = text
  if aged then aged[#aged + 1] = text end
  if warm then warm[#warm + 1] = text end
end

local function rank(flow, head)
  local lists, text, order = rankings_of(flow.place), member(flow, head), flows.order(flow)
  local fair, aged, warm = lists.fair_in, lists.aged_in, lists.warm_in
  fair[#fair + 1], fair[#fair + 2] = order, text
  if aged then aged[#aged + 1], aged[#aged + 2] = flows.since(flow), text end
  if warm then warm[#warm + 1], warm[#warm + 2] = order, text end
end

local function save_rank(flow)
  local ranked, head = flow.ranked, not flow.parked and flow.head
  if ranked and head and ranked.id == head.id and ranked.score == head.score then return end
  if ranked then unrank(flow, ranked) end
  if head then rank(flow, head) end
  if flow.place.model ~= '' and not ranked ~= not head then wanted.moved[flow.place] = true end
  flow.ranked = head
end

-- Writes the number of waiting jobs of each queue. Several places may be in one queue.
local function save_counts()
  local keys, more = {}, {}
  for _, place in ipairs(flows.counted) do
    keys[place.queue] = life .. 'queues:' .. place.service
    more[place.queue] = (more[place.queue] or 0) + place.more
    place.more = nil
  end
  for queue, n in pairs(more) do
    if n ~= 0 and call('HINCRBY', keys[queue], queue, n) <= 0 then call('HDEL', keys[queue], queue) end
  end
  flows.counted = {}
end

-- Writes all changes: flows, rankings, counts and accounts.
function flows.save()
  for _, flow in ipairs(flows.touched) do
    if flow.popped > 0 then
      call('ZREMRANGEBYRANK', flow.line, 0, flow.popped - 1)
      flow.popped, flow.spots, flow.spot_at = 0, nil, nil
    end
    save_rank(flow)
    flow.is_touched = false
  end
  flows.touched = {}
  save_counts()
  accounts.save()
  later.run()
  wanted.save()
end

-- Every flow of a queue, parked ones included.
function flows.all(queue)
  local found = {}
  for _, text in ipairs(call('ZRANGE', life .. 'fair:' .. queue, 0, -1)) do
    found[#found + 1] = flows.of_member(text)
  end
  for _, name in ipairs(call('SMEMBERS', life .. 'parked:' .. queue)) do
    found[#found + 1] = flows.named(name)
  end
  return found
end

-- Whether claims can find the first job: the flow is ranked, or parked so that it will be unparked.
function flows.is_ranked(flow)
  local head, queue, user = flows.look(flow), flow.place.queue, flow.user
  if flow.parked then
    return call('SISMEMBER', life .. 'capped:' .. user, flow.name) == 1
      and call('EXISTS', life .. 'slots:user:' .. user) == 1
  end
  return head and call('ZSCORE', life .. 'fair:' .. queue, member(flow, head))
end

-- --- parking: flows whose user has as many jobs running as allowed -------------------------------
function flows.is_parked(flow)
  if flow.parked == nil then
    local place = flow.place
    flow.parked = place.cap > 0
      and call('SISMEMBER', life .. 'parked:' .. place.queue, flow.name) == 1
  end
  return flow.parked
end

function flows.park(flow)
  call('SADD', life .. 'parked:' .. flow.place.queue, flow.name)
  call('SADD', life .. 'capped:' .. flow.user, flow.name)
  flow.parked = true
  wanted.leaves(flow)
  touch(flow)
end

function flows.forget_parked(flow)
  local place = flow.place
  if place.cap > 0 and call('SREM', life .. 'parked:' .. place.queue, flow.name) == 1 then
    call('SREM', life .. 'capped:' .. flow.user, flow.name)
  end
  flow.parked = false
end

function flows.unpark(user)
  for _, name in ipairs(call('SMEMBERS', life .. 'capped:' .. user)) do
    local flow = flows.named(name)
    flows.look(flow)
    flows.forget_parked(flow)
    touch(flow)
  end
end

-- The first flows of a queue in one of its rankings, as many parked ones, and the total number of flows.
function flows.some(queue, ranking, most)
  local found, key = {}, life .. ranking .. queue
  for _, text in ipairs(call('ZRANGE', key, 0, most - 1)) do found[#found + 1] = flows.of_member(text) end
  local parked = call('SMEMBERS', life .. 'parked:' .. queue)
  for i = 1, math.min(most, #parked) do found[#found + 1] = flows.named(parked[i]) end
  return found, call('ZCARD', key) + #parked
end
