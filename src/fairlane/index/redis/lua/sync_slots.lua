-- Corrects one pool by the ledger's rows; slots of proposals are not changed. Answers the number of
-- corrected slots.
-- KEYS prefix
-- ARGV name text: of the pool
-- ARGV rows json: [pool, n, until, token] for each slot
-- ARGV now number
--@include slots
--@include flows
--@include idle_workers
local function is_proposed(token)
  return call('HEXISTS', life .. 'held', token) == 1
    and call('SISMEMBER', life .. 'verified', token) == 0
end

local pool, corrected = pools.get(name), 0
if not pool and #rows > 0 and is_temporary(name) then pool = pools.make(name, 0, 0) end
if pool then
  pools.expire(pool, now)
  local truth, believed = {}, pairs_of(call('HGETALL', life .. 'slots:' .. name))
  for _, row in ipairs(rows) do truth[whole(row[2])] = row end
  for n, token in pairs(believed) do
    if not truth[n] and not is_proposed(token) then
      slots.forget(name, tonumber(n), token)
      corrected = corrected + 1
    end
  end
  for n, row in pairs(truth) do
    if believed[n] ~= row[4] then
      slots.record(row, row[4])
      corrected = corrected + 1
    end
  end
end
if is_user_pool(name) then flows.unpark(sub(name, 6)) end
flows.save()
idle.wake(corrected)
return corrected
