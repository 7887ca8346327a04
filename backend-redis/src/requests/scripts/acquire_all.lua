-- Grants several locks, all or none, and again to claims that have them.
-- KEYS: of each the lock and the record. ARGV: of each the claim, the lease in ms, what people are told of the holder, and
-- seconds to remember the record.
-- Answers with the tokens as texts; with 0 when another holds one of them; with nil to a withdrawn claim.
local call, tokens, again = redis.call, {}, {}
for i = 1, #KEYS, 2 do
  local holder = call('GET', KEYS[i])
  if holder and holder ~= ARGV[2 * i - 1] then
    return 0
  end
  again[i] = holder
end
local time = call('TIME')
for i = 1, #KEYS, 2 do
  local lock, record, claim = KEYS[i], KEYS[i + 1], ARGV[2 * i - 1]
  local lease = ARGV[2 * i]
  if again[i] then
    -- The request may come late, and the lease may have been extended before.
    lease = math.max(lease, call('PTTL', lock))
  end
  local token, bad
  if call('SET', lock, claim, 'PX', lease, 'XX') then
    token, bad = issued(record, claim)
  end
  if not token and not bad then
    token, bad = issue(record, time, claim, ARGV[2 * i + 1], ARGV[2 * i + 2])
  end
  if not token then
    for held = 1, #KEYS, 2 do
      -- What a claim held before stays its own.
      if not again[held] and call('GET', KEYS[held]) == ARGV[2 * held - 1] then
        call('DEL', KEYS[held])
      end
    end
    return bad
  end
  call('SET', lock, claim, 'PX', lease)
  tokens[#tokens + 1] = token
end
return tokens
