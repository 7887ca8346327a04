-- Issues the next token of a lock, and remembers it with the claim it is for: the server's clock in microseconds, or one
-- more than the last token if that is greater. Answers with nil for a claim that is marked as withdrawn.
local function issue(record, time, claim, told, remember)
  local micros = time[2]
  if #micros < 6 then
    micros = string.rep('0', 6 - #micros) .. micros
  end
  local token, marks = time[1] .. micros, ''
  local last = redis.call('GET', record)
  if last then
    -- Both begin with sixteen digits, until the year 2286.
    if last >= token then
      token = string.format('%.0f', string.match(last, '^%d+') + 1)
    end
    if string.find(last, '\n', 1, true) then
      for mark, till in string.gmatch(last, '\n(%S+) (%d+)') do
        if tonumber(till) >= tonumber(time[1]) then
          if mark == '-' .. claim then
            return nil
          end
          marks = marks .. '\n' .. mark .. ' ' .. till
        end
      end
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
