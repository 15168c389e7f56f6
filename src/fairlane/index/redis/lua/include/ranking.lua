--@include flows
-- A ranking (sorted set of flows) during one claim: the best flows are read first, more when needed. The
-- claim does not write meanwhile, so positions in the sorted set do not change. Measures only grow; a
-- changed measure is corrected when it reaches the top.
local rankings = {open = {}}
local FIRST_LOOK, LONGEST_LOOK = 1, 128

function rankings.get(key, measure)
  local ranking = rankings.open[key]
  if not ranking then
    ranking = {key = key, measure = measure, items = {}, seen = 0, more = true, stale = {}}
    ranking.look, ranking.at = FIRST_LOOK, 1
    rankings.open[key] = ranking
  end
  return ranking
end

local function comes_before(a, b)
  if a.measure ~= b.measure then return a.measure < b.measure end
  if a.score ~= b.score then return a.score < b.score end
  return before(a.flow.name, b.flow.name)
end

-- Inserts in order. Items before `at` are used up.
local function insert(ranking, item)
  local items, low = ranking.items, ranking.at
  local high = #items + 1
  if high == low or not comes_before(item, items[high - 1]) then
    items[high] = item
    return
  end
  while low < high do
    local middle = math.floor((low + high) / 2)
    if comes_before(item, items[middle]) then high = middle else low = middle + 1 end
  end
  table.insert(items, low, item)
end

-- Reads the encoded entries of the first jobs of these flows, in one call.
local function read_texts(list)
  local ids, heads = {}, {}
  for _, flow in ipairs(list) do
    local head = flow.head
    if head and not head.text then ids[#ids + 1], heads[#heads + 1] = head.id, head end
  end
  for i, text in ipairs(values_of(life .. 'jobs', ids)) do heads[i].text = text end
end

local function look_further(ranking)
  local rows = call(
    'ZRANGE', ranking.key, ranking.seen, ranking.seen + ranking.look - 1, 'WITHSCORES')
  local found = {}
  for i = 1, #rows, 2 do
    local flow = flows.of_member(rows[i], ranking.place)
    ranking.place = flow.place
    found[#found + 1] = flow
    flows.want_account(flow)
  end
  accounts.fetch()
  read_texts(found)
  for i, flow in ipairs(found) do
    if flow.head and not flow.parked then
      local noted, present = tonumber(rows[2 * i]), ranking.measure(flow)
      insert(ranking, {flow = flow, measure = present, score = flow.head.score})
      if present ~= noted then
        ranking.stale[#ranking.stale + 1] = {flow, rows[2 * i - 1]}
      end
    end
  end
  ranking.more = #found == ranking.look
  ranking.seen, ranking.look = ranking.seen + #found, math.min(LONGEST_LOOK, ranking.look * 4)
  if #found > 0 then
    ranking.last_measure, ranking.last_member = tonumber(rows[#rows]), rows[#rows - 1]
  end
end

-- Ranks a flow that is not in the stored ranking, in this script only.
function rankings.add(ranking, flow)
  if ranking.seen == 0 and ranking.more then look_further(ranking) end
  insert(ranking, {flow = flow, measure = ranking.measure(flow), score = flow.head.score})
end

-- Whether no flow that was not read yet can come before this one.
local function is_sure(ranking, item)
  if not ranking.more or item.measure < ranking.last_measure then return true end
  if item.measure > ranking.last_measure then return false end
  return not before(ranking.last_member, flows.member_begins(item.flow, item.score))
end

-- The first flow and its measure, or nil.
function rankings.first(ranking)
  while true do
    local item = ranking.items[ranking.at]
    if not item then
      if not ranking.more then return nil end
      look_further(ranking)
    else
      local flow = item.flow
      local head = flow.head
      local present = head and not flow.parked and ranking.measure(flow)
      if not present then
        ranking.at = ranking.at + 1
      elseif present ~= item.measure or head.score ~= item.score then
        ranking.at = ranking.at + 1
        item.measure, item.score = present, head.score
        insert(ranking, item)
      elseif is_sure(ranking, item) then
        return flow, present
      else
        look_further(ranking)
      end
    end
  end
end

-- Writes the present measures of flows whose stored measure was outdated and whose head did not change.
function rankings.save()
  for key, ranking in pairs(rankings.open) do
    local list = later.list('ZADD', key)
    for _, each in ipairs(ranking.stale) do
      local flow = each[1]
      if flow.head and flow.head == flow.ranked and not flow.parked then
        list[#list + 1], list[#list + 2] = ranking.measure(flow), each[2]
      end
    end
  end
  rankings.open = {}
end
