-- Tells why a claim with this token does not hold a lock. "passed" says that others were granted it since, but that none
-- holds it alone: to a claim that shared it, they did no harm.
local function why(lock, record, claim, token)
  local last = text_at(record) or ''
  if string.find(last, '\n!' .. claim, 1, true) then
    return 'forced'
  end
  local latest, holder = string.match(last, '^(%d+) (%S+)')
  local value = text_at(lock)
  if value then
    local how = string.match(value, '^(%l[%l%d ]*)\n')
    if not how or how == 'alone' then
      return 'taken'
    end
    return holder == claim and 'expired' or 'passed'
  elseif holder == claim then
    return 'expired'
  elseif latest and (#latest > #token or #latest == #token and latest > token) then
    return 'passed'
  end
  return 'forgotten'
end
