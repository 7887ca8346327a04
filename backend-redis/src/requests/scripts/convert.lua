-- Changes how a claim holds a lock.
-- KEYS: lock, record; and where there is a queue: queue, waiters. ARGV: claim, seconds to remember the record, token, and
-- how it is to be held.
-- Answers with 1; with 0 when others hold it as well; or with the word for why the claim does not hold it.
local lock, record, claim, how = KEYS[1], KEYS[2], ARGV[1], ARGV[4]
local held = read(text_at(lock))
local at = find(held, claim)
if not at then
  return why(lock, record, claim, ARGV[3])
elseif held.how == how then
  -- Written once more: on a new connection WAIT counts nothing that was written before.
  local left = redis.call('PTTL', lock)
  if left > 0 then
    redis.call('PEXPIRE', lock, left)
  end
  return 1
elseif held[2] then
  return 0
end
if held.ends[at] then
  -- A claim that was one of several keeps its line when it is alone: the record may be about another.
  held.how = how
  keep(lock, held)
else
  local latest, told = string.match(text_at(record) or '', '^%d+ (%S+) ?([^\n]*)')
  told, held = latest == claim and told or '', read(nil)
  hold(lock, held, how, claim, ARGV[3], 1, told, redis.call('PTTL', lock))
end
if how ~= 'alone' then
  wake(KEYS, held, ARGV[2])
end
return 1
