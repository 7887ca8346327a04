-- Grants a lock to the first in its queue, if those who hold it admit that, and again to the claim that has it; queues the
-- claim otherwise.
-- KEYS: lock, record, queue, waiters. ARGV: claim, lease in ms, what people are told of the holder, seconds to remember
-- the record, how the lock is to be held, how many permits it takes, and, unless the claim is not to wait, the channel on
-- which its client listens.
-- Answers with the token as text; with nil to a claim that was withdrawn or released by force; with how the lock is held, in a
-- list, when that is with another number of permits; or with what is left of the others' leases in ms, or -1, and the
-- server's clock in seconds and microseconds.
local call, lock, record, claim, lease, how, take, inbox =
  redis.call, KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[5], ARGV[6], ARGV[7]
-- The short way, for a claim that wants a lock alone which is free and which no other claim waits for. It looks at the lock
-- before it writes: a full server refuses to write, and can tell that the lock is held.
if how == 'alone' and call('EXISTS', lock, KEYS[3]) == 0 and call('SET', lock, claim, 'NX', 'PX', lease) then
  local token, bad = issue(record, server_time(), claim, ARGV[3], ARGV[4])
  if not token then
    call('DEL', lock)
  end
  return token or bad
end
