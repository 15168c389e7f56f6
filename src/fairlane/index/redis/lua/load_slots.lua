-- Slots as the ledger knows them, unless the token has been freed meanwhile.
-- KEYS prefix
-- ARGV epoch text: pages of another one are ignored
-- ARGV rows json: [pool, n, until, token] each
--@include slots
if epoch ~= state.epoch then return end
for _, row in ipairs(rows) do
  if row[3] > 0 or call('SISMEMBER', life .. 'freed', row[4]) == 0 then
    slots.believe(row, row[4])
  end
end
later.run()
