-- Deletes these keys, unless they belong to the present build of the index.
-- KEYS prefix
-- ARGV keys rest: names
--@include keys
for _, key in ipairs(keys) do
  if sub(key, 1, #life) ~= life then call('UNLINK', key) end
end
