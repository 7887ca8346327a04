-- Grants a lock that is free, and again to the claim that has it.
-- KEYS: lock, record. ARGV: claim, lease in ms, what people are told of the holder, seconds to remember the record.
-- Answers with the token as text; with what is left of another's lease in ms, or -1; with nil to a withdrawn claim.
local call, lock, record, claim = redis.call, KEYS[1], KEYS[2], ARGV[1]
if not call('SET', lock, claim, 'NX', 'PX', ARGV[2]) then
  if call('GET', lock) ~= claim then
    return call('PTTL', lock)
  end
  call('PEXPIRE', lock, ARGV[2])
  local token = issued(record, claim)
  if token then
    return token
  end
end
local token = issue(record, call('TIME'), claim, ARGV[3], ARGV[4])
if not token then
  call('DEL', lock)
end
return token
