-- Ends the hold of a claim, and what it leaves while it waits. If a request of it may still be on its way, marks it, so that
-- the request finds itself withdrawn.
-- KEYS: lock, record; where there is a queue: queue, waiters; elsewhere the key that stops newcomers, if it may be the
-- claim's. ARGV: claim, seconds to remember the record, and seconds to keep a mark, or nothing.
-- Answers as release does.
local claim = ARGV[1]
local stood = give_up(KEYS, claim)
if ARGV[3] then
  mark(KEYS[2], { ['-' .. claim] = ARGV[3] }, ARGV[2])
end
local held = read(text_at(KEYS[1]))
local at = find(held, claim)
if at then
  remove(held, at)
  return settle(KEYS, held, ARGV[2])
elseif stood then
  wake(KEYS, held, ARGV[2])
end
return -1
