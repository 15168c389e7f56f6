-- Removes accounts of users without jobs whose last start is too old to affect the order: one page of
-- one service. Answers the cursor of the next page.
-- KEYS prefix
-- ARGV service text
-- ARGV cursor text
-- ARGV now number
--@include service_queue
--@include pools
local PAGE = 500
local page = call('HSCAN', life .. 'accounts:' .. service, cursor, 'COUNT', PAGE)
for field, packed in pairs(pairs_of(page[2])) do
  local rank, account = tonumber(match(field, '^%d+')), accounts.unpacked(packed)
  local long_ago = now - math.max(ACCOUNT_RETENTION_MICROSECONDS, tiers().patience[rank + 1] or 0)
  if account.lines == 0 and account.running == 0 and account.at <= long_ago then
    call('HDEL', life .. 'accounts:' .. service, field)
  end
end
local nothing_left = page[1] == '0'
  and call('EXISTS', life .. 'queues:' .. service, life .. 'accounts:' .. service) == 0
  and call('HEXISTS', life .. 'credits', service) == 0
  and pools.forgets(service, now)
if nothing_left then
  call('ZREM', life .. 'desks', service)
  call('HDEL', life .. 'last_models', service)
  call('DEL', life .. 'virtual:' .. service, life .. 'loaded:' .. service)
end
return page[1]
