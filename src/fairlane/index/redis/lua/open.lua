-- Ends a rebuild: queues the next loaded jobs, oldest first. When all are queued, claims under this
-- epoch are accepted. Answers the number of jobs left, or -1 if another rebuild has started since.
-- KEYS prefix
-- ARGV epoch text
-- ARGV now number
-- ARGV most number: the most jobs that one call queues
--@include held
--@include arrivals
--@include circuit_breakers
--@include idle_workers
if epoch ~= state.epoch then return -1 end
if not state.loading then return 0 end

if call('HGET', prefix .. 'meta', 'resumed') ~= '1' then
  for _, breaker in pairs(breakers.all()) do
    if breaker.probe ~= '' and call('HEXISTS', life .. 'held', breaker.probe) == 0 then
      breakers.forget_probe(breaker.probe)
    end
  end
  local tokens, running = call('HKEYS', life .. 'held'), {}
  for _, was in ipairs(held.all(tokens)) do running[#running + 1] = was end
  table.sort(running, function(a, b) return a.number < b.number end)
  for _, each in ipairs(running) do service_queue.resume(read_entry(each.id, each.text)) end
  call('HSET', prefix .. 'meta', 'resumed', '1')
end

local ids = call('ZRANGE', life .. 'loading', 0, most - 1)
for i, text in ipairs(values_of(life .. 'jobs', ids)) do
  if text then
    local score, ready_at, owner = read_coming(text)
    news.line_up(ids[i], score, ready_at, owner, now)
  end
end
call('ZREMRANGEBYRANK', life .. 'loading', 0, most - 1)
service_queue.enter()
flows.save()
local left_over = call('ZCARD', life .. 'loading')
if left_over == 0 then
  call('HSET', prefix .. 'meta', 'loading', '0')
  call('DEL', life .. 'gone', life .. 'freed')
  idle.wake(nil)
end
return left_over
