-- Grants a lock that is free to the first in its queue, and again to the claim that has it; queues the claim otherwise.
-- KEYS: lock, record, queue, waiters. ARGV: claim, lease in ms, what people are told of the holder, seconds to remember
-- the record, and, unless the claim is not to wait, the channel on which its client listens.
-- Answers with the token as text; with nil to a withdrawn claim; or with what is left of another's lease in ms, or -1,
-- and the server's clock in seconds and microseconds.
local call, lock, record, claim, inbox = redis.call, KEYS[1], KEYS[2], ARGV[1], ARGV[5]
local holder = call('GET', lock)
if holder == claim then
  call('PEXPIRE', lock, ARGV[2])
  leave(KEYS, claim)
  local token = issued(record, claim)
  if token then
    return token
  end
elseif not holder then
  holder = hand_over(KEYS, ARGV[4], claim) or claim
  if holder == claim then
    leave(KEYS, claim)
    call('SET', lock, claim, 'PX', ARGV[2])
  end
end
local time = call('TIME')
if holder == claim then
  local token = issue(record, time, claim, ARGV[3], ARGV[4])
  if not token then
    call('DEL', lock)
  end
  return token
end
if inbox then
  local till = time[1] * 1000 + math.floor(time[2] / 1000) + LIVES
  call('ZADD', KEYS[3], 'NX', time[1] * 1000000 + time[2], claim)
  call('HSET', KEYS[4], claim, string.format('%.0f %s %s\n%s', till, ARGV[2], ARGV[3], inbox))
  call('PEXPIRE', KEYS[3], LIVES * 2)
  call('PEXPIRE', KEYS[4], LIVES * 2)
end
return { call('PTTL', lock), time[1], time[2] }
