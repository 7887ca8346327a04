-- One node's part of the second round: raises the token of a claim, if its key still stands here and nothing greater was
-- issued to it. So every grant that this node took part in before has a smaller token, and every later one gets a greater.
-- KEYS: lock, record. ARGV: claim, token, seconds to remember the record.
-- Answers with 1, or with 0 when it did not.
local token, bad = issued(KEYS[2], ARGV[1])
if bad then
  return bad
elseif redis.call('GET', KEYS[1]) ~= ARGV[1] or not token or not at_least(ARGV[2], token) then
  return 0
end
local last = remembered(KEYS[2])
local rest = string.gsub(string.sub(last, #token + 1), '\n# ', '\n+ ', 1)
redis.call('SET', KEYS[2], ARGV[2] .. rest, 'EX', ARGV[3])
return 1
