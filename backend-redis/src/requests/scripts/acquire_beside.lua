-- The long way, on a lock that others hold, or that somebody waits to have alone.
local held = read(redis.call('GET', lock))
local at = find(held, claim)
if at then
  return granted_again(lock, record, held, at, lease, ARGV[3], ARGV[4])
elseif disagrees(held, how) then
  return { held.how }
elseif not admits(held, how, take) then
  return refused_for(lock, held, how)
end
local stopped = redis.call('PTTL', KEYS[3])
if stopped > 0 then
  return stopped
end
clock()
local token, bad = issue(record, time, claim, ARGV[3], no_shorter(record, ARGV[4]))
if token then
  hold(lock, held, how, claim, token, take, ARGV[3], lease)
end
return token or bad
