-- Ends the hold of a claim.
-- KEYS: lock; and where there is a queue: record, queue, waiters. ARGV: claim, seconds to remember the record.
-- Answers with how many clients were told, or with -1 when the claim does not hold the lock.
local held = read(text_at(KEYS[1]))
local at = find(held, ARGV[1])
if not at then
  return -1
end
remove(held, at)
return settle(KEYS, held, ARGV[2])
