-- These keys are gone, unless they belong to the present life.
-- KEYS prefix
-- ARGV keys rest: names
--@include state
for _, key in ipairs(keys) do
  if sub(key, 1, #life) ~= life then call('UNLINK', key) end
end
