-- Has a claim that holds a lock hold it for at least so many ms from now: the request may come late, and the lease may have
-- been extended before. Answers with its token, with an error, or with nil to a withdrawn claim.
local function granted_again(lock, record, held, at, lease, told, remember)
  if held.ends[at] then
    extend(lock, held, at, math.max(lease, held.ends[at] - clock()))
    return string.match(held[at], '^%S+ %d+ (%d+)')
  end
  -- It holds the lock alone, and may have wanted less when it asked again.
  local claim = held[at]
  if redis.call('PTTL', lock) < tonumber(lease) then
    redis.call('PEXPIRE', lock, lease)
  end
  local token, bad = issued(record, claim)
  if not token and not bad then
    clock()
    token, bad = issue(record, time, claim, told, remember)
    if not token then
      redis.call('DEL', lock)
    end
  end
  return token or bad
end
