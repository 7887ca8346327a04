-- Grants a lock beside those who hold it in the same way, and again to the claim that has it.
-- KEYS: lock, record, and the key that stops newcomers. ARGV: claim, lease in ms, what people are told of the holder,
-- seconds to remember the record, how the lock is to be held, and how many permits it takes.
-- Answers with the token as text; with what is left of the others' leases in ms, or -1; with nil to a withdrawn claim; or
-- with how it is held, in a list, when that is with another number of permits.
local lock, record, claim, lease, how, take = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[5], ARGV[6]
-- The short way, for the first on a lock that is free.
if redis.call('EXISTS', lock, KEYS[3]) == 0 then
  local time = server_time()
  local token, bad = issue(record, time, claim, ARGV[3], ARGV[4])
  if token then
    local till = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + lease)
    local value = how .. '\n' .. claim .. ' ' .. till .. ' ' .. token .. ' ' .. take .. ' ' .. ARGV[3]
    redis.call('SET', lock, value, 'PX', lease)
  end
  return token or bad
end
