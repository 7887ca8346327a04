-- Tells why a claim with this token does not hold a lock.
local function why(lock, record, claim, token)
  local last = redis.pcall('GET', record)
  if type(last) ~= 'string' then
    last = ''
  end
  if string.find(last, '\n!' .. claim, 1, true) then
    return 'forced'
  end
  local latest, holder = string.match(last, '^(%d+) (%S+)')
  if redis.call('EXISTS', lock) == 1 then
    return 'taken'
  elseif holder == claim then
    return 'expired'
  elseif latest and (#latest > #token or #latest == #token and latest > token) then
    return 'taken'
  end
  return 'forgotten'
end
