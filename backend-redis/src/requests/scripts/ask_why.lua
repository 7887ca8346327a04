-- Tells why a claim does not hold a lock.
-- KEYS: lock, record. ARGV: claim, token.
return why(KEYS[1], KEYS[2], ARGV[1], ARGV[2])
