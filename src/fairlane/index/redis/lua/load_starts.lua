-- Loads the last starts of users, from which their jobs age.
-- KEYS prefix
-- ARGV epoch text: pages of another epoch are ignored
-- ARGV starts json: [service, rank, user, at, job] for each start
--@include service_queue
if epoch ~= state.epoch then return end
for _, start in ipairs(starts) do accounts.want(accounts.book(start[1], start[2]), start[3]) end
accounts.fetch()
for _, start in ipairs(starts) do
  local service, rank, user, at, job = start[1], start[2], start[3], start[4], start[5]
  service_queue.ensure(service)
  if service_named(service).fair then
    local account = accounts.get(accounts.book(service, rank), user)
    if at > account.at then
      accounts.started(account, job, at)
    else
      account.other_at, account.changed = math.max(at, account.other_at), true
    end
  end
end
accounts.save()
later.run()
