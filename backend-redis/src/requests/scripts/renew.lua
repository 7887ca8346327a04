-- Extends the leases of claims that still hold their locks.
-- KEYS: lock, record, lock, record, ... ARGV: seconds to remember records, then claim, token, lease in ms of each, and the
-- mode that its holder relies on.
-- Answers for each with 1; with the word for what became of it; or, in a list, with the error that it alone met.
local function renew(lock, record, claim, token, lease, how)
  local value, remember = text_at(lock), math.max(ARGV[1], math.ceil(lease / 500))
  if value == claim then
    redis.call('PEXPIRE', lock, lease)
  elseif type(value) == 'string' and renewed(lock, value, claim, lease, how) then
    remember = no_shorter(record, remember)
  elseif find(read(value), claim) then
    -- It has less than its holder relies on: an upgrade was lost.
    return 'forgotten'
  else
    return why(lock, record, claim, token)
  end
  redis.call('EXPIRE', record, remember)
  return 1
end

local answers, any, at = {}, false, 2
for key = 1, #KEYS, 2 do
  local fine, answer = pcall(renew, KEYS[key], KEYS[key + 1], unpack(ARGV, at, at + 3))
  any = any or fine
  answers[#answers + 1] = fine and answer or { tostring(type(answer) == 'table' and answer.err or answer) }
  at = at + 4
end
if KEYS[1] and not any then
  -- It is the server that fails: it may have become a replica. Once more, so that its error is the answer.
  renew(KEYS[1], KEYS[2], unpack(ARGV, 2, 5))
end
return answers
