-- The text at a key; false where there is none; or 0, in which no pattern is found, where a key of another type stands.
-- Any other error ends the script, such as that for a user who may not read the key: it says nothing about the lock.
local function text_at(key)
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then
    return string.find(value.err, '^WRONGTYPE') and 0 or redis.call('GET', key)
  end
  return value
end
