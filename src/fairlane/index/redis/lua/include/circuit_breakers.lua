--@include keys
-- Circuit breakers of services and regions with recent failures: no calls until `open_until`, then one
-- probe. Services without a breaker are called. Breakers survive a rebuild.
local breakers = {}

function breakers.all()
  if not breakers.known then
    breakers.known = {}
    for key, packed in pairs(pairs_of(call('HGETALL', prefix .. 'gates'))) do
      local v = cmsgpack.unpack(packed)
      breakers.known[key] = {failed = v[1], open_until = v[2], delay = v[3], probe = v[4]}
    end
  end
  return breakers.known
end

function breakers.any()
  return next(breakers.all()) ~= nil
end

function breakers.get(key)
  return breakers.all()[key] or {failed = {}, open_until = 0, delay = 0, probe = ''}
end

function breakers.set(key, breaker)
  if #breaker.failed == 0 and breaker.open_until == 0 and breaker.delay == 0 and breaker.probe == '' then
    breakers.known[key] = nil
    call('HDEL', prefix .. 'gates', key)
  else
    breakers.known[key] = breaker
    local packed = cmsgpack.pack({breaker.failed, breaker.open_until, breaker.delay, breaker.probe})
    call('HSET', prefix .. 'gates', key, packed)
  end
end

-- The breakers of a service and, if there is one, its region.
function breakers.keys(service, region)
  if region then return {service, service .. '@' .. region} end
  return {service}
end

-- Whether a job may be handed out: after `open_until`, one at a time as a probe.
function breakers.admits(service, region, now)
  for _, key in ipairs(breakers.keys(service, region)) do
    local breaker = breakers.get(key)
    if breaker.open_until > 0 and (now < breaker.open_until or breaker.probe ~= '') then return false end
  end
  return true
end

-- A job was handed out. If the breaker is open, the job is the probe.
function breakers.let_through(service, region, token)
  for _, key in ipairs(breakers.keys(service, region)) do
    local breaker = breakers.get(key)
    if breaker.open_until > 0 then
      breaker.probe = token
      breakers.set(key, breaker)
    end
  end
end

-- Records an answer of the service. Returns whether that closes the breaker. Without a delay the breaker
-- only suspects a failure: then any answer closes it.
function breakers.answered(service, region, token)
  local goes_on = false
  for _, key in ipairs(breakers.keys(service, region)) do
    local breaker = breakers.get(key)
    if breaker.delay == 0 or breaker.probe == token then
      goes_on = goes_on or breaker.open_until > 0
      breakers.set(key, {failed = {}, open_until = 0, delay = 0, probe = ''})
    end
  end
  return goes_on
end

-- Counts a failed call: (the breaker, whether it is the service's fault, jobs that get their attempt back).
function breakers.failed(breaker, token, job, now, retry_after)
  if breaker.delay > 0 then
    if breaker.probe ~= token then return breaker, true, {} end
    local delay = math.min(MAX_DELAY_MICROSECONDS, breaker.delay * 2)
    local wait = retry_after > 0 and retry_after or delay
    return {failed = breaker.failed, open_until = now + wait, delay = delay, probe = ''}, true, {}
  end
  local streak, attempts_returned = {}, {}
  for _, each in ipairs(breaker.failed) do
    if each ~= job then streak[#streak + 1], attempts_returned[#attempts_returned + 1] = each, each end
  end
  streak[#streak + 1] = job
  if #streak < OPEN_AFTER_FAILURES - 1 then
    return {failed = streak, open_until = 0, delay = 0, probe = ''}, false, {}
  end
  local open_until = now + (retry_after > 0 and retry_after or FIRST_DELAY_MICROSECONDS)
  local probe = breaker.probe ~= token and breaker.probe or ''
  if #streak < OPEN_AFTER_FAILURES then
    return {failed = streak, open_until = open_until, delay = 0, probe = probe}, false, {}
  end
  return {failed = streak, open_until = open_until, delay = FIRST_DELAY_MICROSECONDS, probe = probe}, true, attempts_returned
end

-- The attempt ended without an answer: if it was a probe, another one may be sent.
function breakers.forget_probe(token)
  for key, breaker in pairs(breakers.all()) do
    if breaker.probe == token and token ~= '' then
      breaker.probe = ''
      breakers.set(key, breaker)
    end
  end
end

function breakers.next_probe_at(now)
  local soonest
  for _, breaker in pairs(breakers.all()) do
    if breaker.open_until > now and (not soonest or breaker.open_until < soonest) then
      soonest = breaker.open_until
    end
  end
  return soonest
end
