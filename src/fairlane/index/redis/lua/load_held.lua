-- Loads one page of running jobs, except those whose tokens were freed since the rebuild began.
-- KEYS prefix
-- ARGV epoch text: pages of another epoch are ignored
-- ARGV running rest: for each job its token, id, encoded entry, slots [pool, n, until] as JSON, start time
--@include held
--@include pools
if epoch ~= state.epoch then return end
local tokens = {}
for i = 1, #running, 5 do tokens[#tokens + 1] = running[i] end
local known = held.all(tokens)
for i, token in ipairs(tokens) do
  local at = 5 * i - 4
  if call('SISMEMBER', life .. 'freed', token) == 0 then
    local entry = read_entry(running[at + 1], running[at + 2])
    local slots, since = cjson.decode(running[at + 3]), tonumber(running[at + 4])
    local number = known[i] and known[i].number or next_number()
    local is_verified = call('SISMEMBER', life .. 'verified', token) == 1
    local seen_at = is_verified and call('ZSCORE', life .. 'seen', token) or since
    held.file(token, entry, pools.packed(slots), since, number, seen_at)
  end
end
later.run()
