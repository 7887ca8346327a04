-- Ends whatever hold a lock has, tells those who wait, and marks the claim, so that its holder can be told why.
-- KEYS: lock, record; and where there is a queue: queue, waiters. ARGV: seconds to remember the record.
-- Answers as look does.
local time, holder = redis.call('TIME'), redis.call('GET', KEYS[1])
if not holder then
  return { time[1], time[2], false, -2, false }
end
local left, last = redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[2])
if last and left > 0 and string.match(last, '^%d+ (%S+)') == holder then
  mark(KEYS[2], '!' .. holder, math.ceil(left / 1000) + 1, ARGV[1])
end
free(KEYS, ARGV[1])
return { time[1], time[2], holder, left, last }
