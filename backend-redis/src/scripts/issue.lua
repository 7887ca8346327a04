-- Issues the next token of a lock, and remembers it with the claim it is for: the server's clock in microseconds, or one
-- more than the last token if that is greater. Answers with nil for a claim that is marked as withdrawn.
local function issue(record, time, claim, told, remember)
  local micros = time[2]
  if #micros < 6 then
    micros = string.rep('0', 6 - #micros) .. micros
  end
  local token = time[1] .. micros
  -- Nearly always this is all: it is remembered, and what was remembered before asks for nothing else.
  local last = redis.pcall('SET', record, token .. ' ' .. claim .. ' ' .. told, 'EX', remember, 'GET')
  if not last or type(last) == 'string' and last < token and not string.find(last, '\n', 1, true) then
    return token
  end
  if type(last) ~= 'string' then
    -- A server before 6.2 does not do both in one command.
    last = redis.call('GET', record) or ''
  end
  -- Both begin with sixteen digits, until the year 2286.
  if last >= token then
    token = string.format('%.0f', string.match(last, '^%d+') + 1)
  end
  local marks = ''
  for mark, till in string.gmatch(last, '\n(%S+) (%d+)') do
    if tonumber(till) >= tonumber(time[1]) then
      if mark == '-' .. claim then
        redis.call('SET', record, last, 'EX', remember)
        return nil
      end
      marks = marks .. '\n' .. mark .. ' ' .. till
    end
  end
  redis.call('SET', record, token .. ' ' .. claim .. ' ' .. told .. marks, 'EX', remember)
  return token
end

-- The token that a claim was granted before, if it still has the lock.
local function issued(record, claim)
  local token, holder = string.match(redis.call('GET', record) or '', '^(%d+) (%S+)')
  return holder == claim and token
end
