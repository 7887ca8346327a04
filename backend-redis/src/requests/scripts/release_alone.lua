-- The short way of a release while there is no queue, for the only holder: its lease has not run out while the lock stands.
-- Where no client could be told so, the long way follows.
local value = KEYS[3] and redis.pcall('EXISTS', KEYS[3]) ~= 0 or redis.pcall('GET', KEYS[1])
if value == ARGV[1] or type(value) == 'string' and string.match(value, '^%l[%l%d ]*\n(%S+) [^\n]*$') == ARGV[1] then
  local told = redis.pcall(PUBLISH, KEYS[1], '')
  if type(told) == 'number' then
    redis.call('DEL', KEYS[1])
    return told
  end
end
