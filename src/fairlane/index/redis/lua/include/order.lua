--@include keys
-- The scheduling order: which candidate starts next, and the credit that this costs its class.
local KIND_SKIP, KIND_FRONT, KIND_AGED, KIND_FRESH = 1, 2, 3, 4
local order = {}

-- Compares two candidates field by field: level, order, score, since, flow, rank, kind.
function order.less(a, b)
  if a.level ~= b.level then return a.level < b.level end
  if a.order ~= b.order then return a.order < b.order end
  if a.score ~= b.score then return a.score < b.score end
  if a.since ~= b.since then return a.since < b.since end
  if a.flow ~= b.flow then return before(a.flow, b.flow) end
  if a.rank ~= b.rank then return a.rank < b.rank end
  return a.kind < b.kind
end

-- Whether this class has the credit to jump ahead of the normal order.
function order.may_jump(kind, credits, shares)
  if kind == KIND_FRESH or shares[kind] >= GRANT_THOUSANDTHS then return true end
  return credits[kind] >= GRANT_THOUSANDTHS
end

local function goes_before(aged, fresh)
  if aged.level ~= fresh.level then return aged.level < fresh.level end
  return aged.since < fresh.since or aged.flow == fresh.flow
end

-- The next candidate of one service, and whether it jumps ahead of the normal order.
function order.choose(heads, credits, shares)
  local skip, front, aged, fresh = heads[1], heads[2], heads[3], heads[4]
  local regular = aged or fresh
  if skip and (not (front or regular) or order.may_jump(KIND_SKIP, credits, shares)) then
    return skip, (front or regular) ~= nil
  end
  if front and (not regular or order.may_jump(KIND_FRONT, credits, shares)) then
    return front, regular ~= nil
  end
  if aged and (not fresh or goes_before(aged, fresh)) then
    local better_born = fresh ~= nil and fresh.rank < aged.rank
    if not better_born or order.may_jump(KIND_AGED, credits, shares) then return aged, better_born end
  end
  if fresh then return fresh, false end
  return aged, false
end

-- Sort key over the choices of all services a worker covers.
local function between_services(candidate)
  if candidate.kind == KIND_SKIP then return -2, candidate.order end
  if candidate.kind == KIND_FRONT then return -1, candidate.order end
  return candidate.level, candidate.since
end

function order.service_goes_first(a, b)
  local a1, a2 = between_services(a)
  local b1, b2 = between_services(b)
  if a1 ~= b1 then return a1 < b1 end
  if a2 ~= b2 then return a2 < b2 end
  return before(a.flow, b.flow)
end

-- --- credits: {skip, front, aged, full = never spent} -----------------------------------------------
function order.credits(service)
  local text = call('HGET', life .. 'credits', service)
  if not text then return {MAX_CREDIT_THOUSANDTHS, MAX_CREDIT_THOUSANDTHS, MAX_CREDIT_THOUSANDTHS, full = true} end
  local skip, front, aged = match(text, '^(%d+) (%d+) (%d+)$')
  return {tonumber(skip), tonumber(front), tonumber(aged)}
end

function order.save_credits(service, credits)
  if credits.full then
    call('HDEL', life .. 'credits', service)
  else
    call('HSET', life .. 'credits', service, table.concat(credits, ' '))
  end
end

-- The credits after a grant.
function order.granted(credits, kind, shares, jumped)
  if kind == KIND_FRESH and credits.full then return credits end
  local paid = jumped and GRANT_THOUSANDTHS or 0
  local skip = math.min(MAX_CREDIT_THOUSANDTHS, credits[1] + shares[1])
  if kind == KIND_SKIP then return {math.max(0, skip - paid), credits[2], credits[3]} end
  local front = math.min(MAX_CREDIT_THOUSANDTHS, credits[2] + shares[2])
  if kind == KIND_FRONT then return {skip, math.max(0, front - paid), credits[3]} end
  local aged = math.min(MAX_CREDIT_THOUSANDTHS, credits[3] + shares[3])
  if kind == KIND_AGED then aged = math.max(0, aged - paid) end
  return {skip, front, aged, full = skip == MAX_CREDIT_THOUSANDTHS and front == MAX_CREDIT_THOUSANDTHS and aged == MAX_CREDIT_THOUSANDTHS}
end
