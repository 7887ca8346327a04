-- Ends the hold of a claim.
-- KEYS: lock; and where there is a queue: record, queue, waiters. ARGV: claim, seconds to remember the record.
-- Answers with how many clients were told, or with -1 when the claim does not hold the lock.
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  return -1
end
return free(KEYS, ARGV[2])
