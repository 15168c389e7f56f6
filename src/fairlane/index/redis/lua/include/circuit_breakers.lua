--@include state
-- The gates of sick services and regions. Those not named here are open. They outlive a rebuild.
local gates = {}

function gates.all()
  if not gates.known then
    gates.known = {}
    for key, packed in pairs(pairs_of(call('HGETALL', prefix .. 'gates'))) do
      local v = cmsgpack.unpack(packed)
      gates.known[key] = {failed = v[1], closed_until = v[2], delay = v[3], probe = v[4]}
    end
  end
  return gates.known
end

function gates.any()
  return next(gates.all()) ~= nil
end

function gates.get(key)
  return gates.all()[key] or {failed = {}, closed_until = 0, delay = 0, probe = ''}
end

function gates.set(key, gate)
  if #gate.failed == 0 and gate.closed_until == 0 and gate.delay == 0 and gate.probe == '' then
    gates.known[key] = nil
    call('HDEL', prefix .. 'gates', key)
  else
    gates.known[key] = gate
    local packed = cmsgpack.pack({gate.failed, gate.closed_until, gate.delay, gate.probe})
    call('HSET', prefix .. 'gates', key, packed)
  end
end

-- The gates of a service and, if there is one, its region.
function gates.keys(service, region)
  if region then return {service, service .. '@' .. region} end
  return {service}
end

-- Whether a job may be handed out there: one at a time as a probe when the closing time is over.
function gates.admits(service, region, now)
  for _, key in ipairs(gates.keys(service, region)) do
    local gate = gates.get(key)
    if gate.closed_until > 0 and (now < gate.closed_until or gate.probe ~= '') then return false end
  end
  return true
end

-- A job was handed out; behind a closed gate it is the probe.
function gates.let_through(service, region, token)
  for _, key in ipairs(gates.keys(service, region)) do
    local gate = gates.get(key)
    if gate.closed_until > 0 then
      gate.probe = token
      gates.set(key, gate)
    end
  end
end

-- The service answered. Whether that opened a gate. Without a delay it is only in doubt: any answer
-- opens it.
function gates.answered(service, region, token)
  local opened = false
  for _, key in ipairs(gates.keys(service, region)) do
    local gate = gates.get(key)
    if gate.delay == 0 or gate.probe == token then
      opened = opened or gate.closed_until > 0
      gates.set(key, {failed = {}, closed_until = 0, delay = 0, probe = ''})
    end
  end
  return opened
end

-- The service did not answer: (the gate, whether it is the service's fault, jobs forgiven).
function gates.failed(gate, token, job, now, retry_after)
  if gate.delay > 0 then
    if gate.probe ~= token then return gate, true, {} end
    local delay = math.min(MAX_DELAY_MICROSECONDS, gate.delay * 2)
    local wait = retry_after > 0 and retry_after or delay
    return {failed = gate.failed, closed_until = now + wait, delay = delay, probe = ''}, true, {}
  end
  local streak, forgiven = {}, {}
  for _, each in ipairs(gate.failed) do
    if each ~= job then streak[#streak + 1], forgiven[#forgiven + 1] = each, each end
  end
  streak[#streak + 1] = job
  if #streak < OPEN_AFTER_FAILURES - 1 then
    return {failed = streak, closed_until = 0, delay = 0, probe = ''}, false, {}
  end
  local closed_until = now + (retry_after > 0 and retry_after or FIRST_DELAY_MICROSECONDS)
  local probe = gate.probe ~= token and gate.probe or ''
  if #streak < OPEN_AFTER_FAILURES then
    return {failed = streak, closed_until = closed_until, delay = 0, probe = probe}, false, {}
  end
  return {failed = streak, closed_until = closed_until, delay = FIRST_DELAY_MICROSECONDS, probe = probe}, true, forgiven
end

-- The attempt ended without an answer: if it was a probe, another may look.
function gates.forget_probe(token)
  for key, gate in pairs(gates.all()) do
    if gate.probe == token and token ~= '' then
      gate.probe = ''
      gates.set(key, gate)
    end
  end
end

function gates.next_opening(now)
  local soonest
  for _, gate in pairs(gates.all()) do
    if gate.closed_until > now and (not soonest or gate.closed_until < soonest) then
      soonest = gate.closed_until
    end
  end
  return soonest
end
