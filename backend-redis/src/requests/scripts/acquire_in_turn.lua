-- Grants a lock to the first in its queue, if those who hold it admit that, and again to the claim that has it; queues the
-- claim otherwise.
-- KEYS: lock, record, queue, waiters. ARGV: claim, lease in ms, what people are told of the holder, seconds to remember
-- the record, how the lock is to be held, how many permits it takes, and, unless the claim is not to wait, the channel on
-- which its client listens.
-- Answers with the token as text; with nil to a claim that was withdrawn or released by force; with how the lock is held, in a list, when that is with
-- another number of permits; or with what is left of the others' leases in ms, or -1, and the server's clock in seconds and
-- microseconds.
local call, lock, record, claim, lease, how, take, inbox =
  redis.call, KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[5], ARGV[6], ARGV[7]
local held = read(call('GET', lock))
local at = find(held, claim)
clock()
if at then
  give_up(KEYS, claim)
  return granted_again(lock, record, held, at, lease, ARGV[3], ARGV[4])
elseif disagrees(held, how) then
  return { held.how }
end
-- Beside one who has it alone there is nobody to serve.
if held.how ~= 'alone' and (serve(KEYS, held, ARGV[4], claim) or claim) == claim and admits(held, how, take) then
  -- Before anything else is written, so that a full server refuses it.
  local token, bad = issue(record, time, claim, ARGV[3], held[1] and no_shorter(record, ARGV[4]) or ARGV[4])
  give_up(KEYS, claim)
  if token then
    hold(lock, held, how, claim, token, take, ARGV[3], lease)
  end
  return token or bad
end
if inbox then
  local marks = text_at(record) or ''
  if string.find(marks, '\n-' .. claim, 1, true) or string.find(marks, '\n!' .. claim, 1, true) then
    return nil
  end
  call('ZADD', KEYS[3], 'NX', time[1] * 1000000 + time[2], claim)
  call('HSET', KEYS[4], claim, string.format('%.0f %s %s %s\n%s\n%s', now + LIVES, lease, take, how, ARGV[3], inbox))
  call('PEXPIRE', KEYS[3], LIVES * 2)
  call('PEXPIRE', KEYS[4], LIVES * 2)
end
return { refused_for(lock, held, how), time[1], time[2] }
