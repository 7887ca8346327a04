-- What a record says of a claim's attempts: the last that was granted here, whether its token was raised, and up to which
-- attempt the claim was withdrawn. Behind a record stands a line '# N' for the attempt that it was issued to, '+ N' once
-- its token was raised; a mark '-CLAIM#N' withdraws the attempts up to N.
local function attempts(last, claim)
  local granted, raised, withdrawn = 0, false, 0
  if string.match(last, '^%d+ (%S+)') == claim then
    local kind, number = string.match(last, '\n([#+]) (%d+)')
    granted, raised = tonumber(number or 0), kind == '+'
  end
  local at = string.find(last, '\n-' .. claim .. '#', 1, true)
  if at then
    withdrawn = tonumber(string.match(last, '^%d+', at + #claim + 3) or 0)
  end
  return granted, raised, withdrawn
end
