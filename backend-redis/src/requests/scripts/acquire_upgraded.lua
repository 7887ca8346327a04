-- The long way, for a claim that changed the mode in which it holds the lock: it is looked for among the holders.
local held = read(holder)
local at = find(held, claim)
if at then
  return granted_again(lock, record, held, at, ARGV[2], ARGV[3], ARGV[4])
end
return call('PTTL', lock)
