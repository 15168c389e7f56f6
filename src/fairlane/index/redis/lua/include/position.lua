--@include flows
--@include claim_preview
-- The queue position of one job in its service.
local standing = {looked_at = 1000} -- the most flows examined per queue

-- The number of jobs of a flow before this job.
local function ahead_in(line, entry)
  local n = call('ZCOUNT', line, '-inf', '(' .. whole(entry.score))
  for _, id in ipairs(call('ZRANGEBYSCORE', line, whole(entry.score), whole(entry.score))) do
    if before(id, entry.id) then n = n + 1 else break end
  end
  return n
end

-- Estimates the jobs before this one in the flows that were not examined: each is taken to have as many
-- jobs as an average flow.
local function unseen(queue, n, counter, most, mean)
  local ranked_before = call('ZCOUNT', life .. 'fair:' .. queue.key, '-inf', '(' .. whole(counter))
  local turns = math.max(0, math.min(n, ranked_before - standing.looked_at))
  return turns * math.min(mean, most + 1) + (n - turns) * math.min(mean, most)
end

-- The jobs of the same tier that probably start before this one: from every other user as many as this
-- user has before the job, plus one if the other user is served first. Of very many users, those that are
-- served first are examined.
local function same_tier(queue, entry, own, own_before, waiting_there)
  local found, others, number = 0, {}, 0
  local known, total = flows.some(queue.key, 'fair:', standing.looked_at)
  for _, flow in ipairs(known) do
    if flow.name ~= own.name and flow.place.fair then
      others[#others + 1] = flow
      flows.want_account(flow)
    elseif flow.name ~= own.name then
      found, number = found + ahead_in(flow.line, entry), number + 1
    end
  end
  local left_out = total - #known
  if #others == 0 then
    return number > 0 and found + floor_div(found * left_out, number) or found
  end
  accounts.fetch()
  local counter = flows.account(own).counter
  for _, flow in ipairs(others) do
    local turn = flows.account(flow).counter < counter and 1 or 0
    local most = own_before + turn
    found = found + (most < 2 and most or math.min(call('ZCARD', flow.line), most))
  end
  if left_out == 0 then return found end
  return found + unseen(queue, left_out, counter, own_before, floor_div(waiting_there, total))
end

-- The number of jobs that probably start before this one if none arrive.
function standing.jobs_before(entry, own, reached, own_before)
  local found = own_before
  local counts = pairs_of(call('HGETALL', life .. 'queues:' .. entry.spec.service))
  local tier = entry.spec.band == TIER
  for _, queue in ipairs(service_queue.queues(entry.spec.service)) do
    local better = queue.band == TIER and queue.rank < reached
    if queue.band < entry.spec.band or (tier and better) then
      found = found + tonumber(counts[queue.key])
    elseif queue.band == entry.spec.band and (not tier or queue.rank == entry.spec.rank) then
      found = found + same_tier(queue, entry, own, own_before, tonumber(counts[queue.key]))
    end
  end
  return found
end

-- The number of queued jobs of this service.
function standing.in_line(service)
  local n = 0
  for _, count in pairs(pairs_of(call('HGETALL', life .. 'queues:' .. service))) do n = n + tonumber(count) end
  return n
end

-- Whether the job is scheduled by its tier only: not as a skip, a front retry or aged.
local function is_fresh(spec, reached, waited)
  local patience = tiers().patience[spec.rank + 1]
  return spec.band == TIER and reached == spec.rank and not (patience > 0 and waited >= patience)
end

-- The position: exact for the first ones. Only skips, front retries and aged jobs start much earlier than
-- estimated.
function standing.position(entry, estimated, reached, waited, now)
  if is_fresh(entry.spec, reached, waited) and estimated > 2 * EXACT_POSITIONS then return estimated end
  local place = preview.place_of(service_named(entry.spec.service), entry.id, now)
  return place or math.max(EXACT_POSITIONS + 1, estimated)
end

-- The estimated position: {position, level, since, ahead, behind own, reasons} and the entry of the job, or
-- nil if the job does not wait.
function standing.estimate(job, now)
  local entry = waiting_entry(job)
  if not entry then return nil end
  local flow = flows.of(entry)
  local at_limit = preview.is_at_limit(flow)
  if call('ZSCORE', life .. 'delays', job) then
    local reasons = standing.reasons(entry, at_limit, now, {'delayed'})
    return {0, entry.spec.rank, entry.score, 0, 0, reasons}, entry
  end
  local own_before = call('ZRANK', flow.line, job)
  local since = entry.score
  flows.look(flow)
  if flow.place.fair then since = own_before == 0 and flows.since(flow) or now end
  local reached = entry.spec.rank
  if entry.spec.band == TIER then reached = level(entry.spec.rank, now - since) end
  local ahead = standing.jobs_before(entry, flow, reached, own_before)
  local estimated = ahead + 1
  if at_limit then
    estimated = standing.in_line(entry.spec.service) - call('ZCARD', flow.line) + own_before + 1
  end
  local behind_own = flow.place.fair and own_before or 0
  return {estimated, reached, since, ahead, behind_own, standing.reasons(entry, at_limit, now, {})}, entry
end

local function is_full(name, now)
  local pool = pools.get(name)
  if pool then pools.expire(pool, now) end
  return pool ~= nil and pool.limit - pool.held <= 0
end

local function regions_of(service, lane)
  local regions = lane.regions
  if #regions == 0 then
    for i, each in ipairs(service.regions) do regions[i] = each[1] end
  end
  return regions
end

-- If no allowed region can start a job: the regions with an open circuit breaker, and the other ones, which
-- are full. Otherwise none.
local function stopped_regions(service, regions, now)
  local failing, full = {}, {}
  for _, region in ipairs(regions) do
    if breakers.get(service.name .. '@' .. region).open_until > 0 then
      failing[#failing + 1] = region
    elseif is_full('svc:' .. service.name .. '@' .. region, now) then
      full[#full + 1] = region
    end
  end
  if #failing + #full < #regions then return {}, {} end
  return failing, full
end

local function explain_breaker(key, now, found)
  local breaker = breakers.get(key)
  local code = breaker.probe ~= '' and breaker.open_until <= now and 'probing:' or 'closed:'
  found[#found + 1] = code .. key .. ':' .. whole(breaker.open_until)
end

-- Explains a full pool: slots of running calls, and slots kept for calls that were cut off.
local function explain_pool(name, found)
  local pool = pools.get(name)
  local limit = '/' .. whole(pool.limit)
  local use = name .. ':' .. whole(pool.held) .. limit
  if is_rate_pool(name) then
    found[#found + 1] = 'rate:' .. use
  else
    local n, first = pools.kept(pool)
    if n < pool.held then found[#found + 1] = 'busy:' .. use end
    if n > 0 then found[#found + 1] = 'kept:' .. name .. ':' .. whole(n) .. limit .. ':' .. whole(first) end
  end
end

function standing.reasons(entry, at_limit, now, found)
  local service = service_named(entry.spec.service)
  local regions = regions_of(service, read_lane(entry.spec.lane))
  if service.paused then found[#found + 1] = 'paused' end
  local failing, full = stopped_regions(service, regions, now)
  if breakers.get(service.name).open_until > 0 then explain_breaker(service.name, now, found) end
  for _, region in ipairs(failing) do explain_breaker(service.name .. '@' .. region, now, found) end
  for _, name in ipairs(pool_names(service, nil)) do
    if is_full(name, now) then explain_pool(name, found) end
  end
  for _, region in ipairs(full) do explain_pool('svc:' .. service.name .. '@' .. region, found) end
  if at_limit then found[#found + 1] = 'user_running:' .. whole(entry.spec.cap) end
  local reserved = hold.get()
  if reserved and reserved.job == entry.id then found[#found + 1] = 'reserving' end
  return found
end
