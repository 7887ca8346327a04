-- Grants a lock that is free, and again to the claim that has it.
-- KEYS: lock, record; and the key that stops newcomers, if the claim has asked before and goes on waiting. ARGV: claim,
-- lease in ms, what people are told of the holder, seconds to remember the record; and how many more tokens to reserve, if
-- any.
-- Answers with the last token as text; with what is left of another's lease in ms, or -1; with nil to a withdrawn claim.
local call, lock, record, claim = redis.call, KEYS[1], KEYS[2], ARGV[1]
local set = redis.pcall('SET', lock, claim, 'NX', 'PX', ARGV[2])
local holder = (not set or set.err) and call('GET', lock)
if set and set.err and not holder then
  -- Only a free lock needs what a full server refuses.
  return set
end
if not holder or holder == claim then
  local token, bad
  if holder then
    -- The request may come late, and the lease may have been extended before.
    if call('PTTL', lock) < tonumber(ARGV[2]) then
      call('PEXPIRE', lock, ARGV[2])
    end
    token, bad = issued(record, claim)
    if token or bad then
      return token or bad
    end
  end
  token, bad = issue(record, server_time(), claim, ARGV[3], ARGV[4], ARGV[5])
  if not token then
    call('DEL', lock)
  elseif KEYS[3] then
    call('DEL', KEYS[3])
  end
  return token or bad
elseif not string.find(holder, '\n' .. claim .. ' ', 1, true) then
  -- Those who hold it beside each other are to become fewer.
  if KEYS[3] and string.find(holder, '\n', 1, true) then
    call('SET', KEYS[3], 1, 'PX', STOPS)
  end
  return call('PTTL', lock)
end
