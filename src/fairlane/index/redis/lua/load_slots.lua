-- Loads slot rows of the ledger, except those of tokens that were freed since the rebuild began.
-- KEYS prefix
-- ARGV epoch text: pages of another epoch are ignored
-- ARGV rows json: [pool, n, until, token] for each slot
--@include slots
if epoch ~= state.epoch then return end
for _, row in ipairs(rows) do
  if row[3] > 0 or call('SISMEMBER', life .. 'freed', row[4]) == 0 then
    slots.record(row, row[4])
  end
end
later.run()
