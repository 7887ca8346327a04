-- One node's part of the second round: raises the token of a claim, if its key still stands here and nothing greater was
-- issued to it. So every grant that this node took part in before has a smaller token, and every later one gets a greater.
-- KEYS: lock, record. ARGV: claim, token, seconds to remember the record.
-- Answers with 1, or with 0 when it did not.
local last = redis.call('GET', KEYS[2]) or ''
local token, claim, rest = string.match(last, '^(%d+) (%S+)(.*)$')
if redis.call('GET', KEYS[1]) ~= ARGV[1] or claim ~= ARGV[1] or token > ARGV[2] then
  return 0
end
rest = string.gsub(rest, '\n# ', '\n+ ', 1)
redis.call('SET', KEYS[2], ARGV[2] .. ' ' .. claim .. rest, 'EX', ARGV[3])
return 1
