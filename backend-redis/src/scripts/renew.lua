-- Extends the leases of claims that still hold their locks.
-- KEYS: lock, record, lock, record, ... ARGV: seconds to remember records, then claim, token, lease in ms of each.
-- Answers for each with 1, or with the word for what became of it.
local call, get, answers, at = redis.call, redis.pcall, {}, 2
for key = 1, #KEYS, 2 do
  local lock, record, claim, lease = KEYS[key], KEYS[key + 1], ARGV[at], ARGV[at + 2]
  local value = get('GET', lock)
  local held = value == claim
  if held then
    call('PEXPIRE', lock, lease)
  else
    held = type(value) == 'string' and renewed(lock, value, claim, lease)
  end
  if held then
    call('EXPIRE', record, math.max(ARGV[1], math.ceil(lease / 500)))
    answers[#answers + 1] = 1
  else
    answers[#answers + 1] = why(lock, record, claim, ARGV[at + 1])
  end
  at = at + 3
end
return answers
