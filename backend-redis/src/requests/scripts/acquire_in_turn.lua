-- The long way, on a lock that is held or has a queue, or for a claim that does not want it alone.
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
  -- The clock stands still within one call, which may carry out many.
  local last = call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')[2] or 0
  call('ZADD', KEYS[3], 'NX', math.max(time[1] * 1000000 + time[2], last + 1), claim)
  call('HSET', KEYS[4], claim, string.format('%.0f %s %s %s\n%s\n%s', now + LIVES, lease, take, how, ARGV[3], inbox))
  call('PEXPIRE', KEYS[3], LIVES * 2)
  call('PEXPIRE', KEYS[4], LIVES * 2)
end
return { refused_for(lock, held, how), time[1], time[2] }
