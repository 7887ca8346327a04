-- One node's part of the first round: holds the lock for a claim if it is free, and issues a token.
-- KEYS: lock, record. ARGV: claim, lease in ms, what people are told of the holder, seconds to remember the record, and
-- the number of the attempt, greater than those of the claim's earlier ones.
-- Answers with the token as text, behind a + if it was raised before; with what is left of another's lease in ms, or -1,
-- and the key's value, which tells holders apart; with nil to an attempt that was withdrawn, or to a claim that was
-- released by force.
local call, lock, record, claim, attempt = redis.call, KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[5])
local holder, last, bad = call('GET', lock), remembered(record)
if holder and holder ~= claim then
  return {call('PTTL', lock), holder}
elseif bad then
  return bad
end
local granted, raised, withdrawn = attempts(last, claim)
if attempt <= withdrawn then
  return nil
end
local token
if holder then
  token, bad = issued(record, claim)
  if bad then
    return bad
  end
end
if token then
  -- An attempt that comes late changes nothing: what a later one was promised stands. No attempt shortens a lease.
  if attempt > granted then
    call('PEXPIRE', lock, math.max(ARGV[2], call('PTTL', lock)))
    last = string.gsub(last, '\n([#+]) %d+', '\n%1 ' .. ARGV[5], 1)
    call('SET', record, last, 'EX', ARGV[4])
  end
  return (raised and '+' or '') .. token
end
call('SET', lock, claim, 'PX', ARGV[2])
token, bad = issue(record, call('TIME'), claim, ARGV[3] .. '\n# ' .. ARGV[5], ARGV[4])
if not token then
  call('DEL', lock)
end
return token or bad
