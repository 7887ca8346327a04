-- Ends the hold of a claim, and its place in a queue. If a request of it may still be on its way, marks it, so that the
-- request finds itself withdrawn.
-- KEYS: lock, record; and where there is a queue: queue, waiters. ARGV: claim, seconds to remember the record, and
-- seconds to keep a mark, or nothing.
-- Answers as release does.
local claim, answer = ARGV[1], -1
if KEYS[3] then
  leave(KEYS, claim)
end
if ARGV[3] then
  mark(KEYS[2], '-' .. claim, ARGV[3], ARGV[2])
end
if redis.pcall('GET', KEYS[1]) == claim then
  answer = free(KEYS, ARGV[2])
end
return answer
