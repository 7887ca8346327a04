-- The server's clock, as TIME tells it. Read at most once, even if one call carries out many.
local time_read
local function server_time()
  time_read = time_read or redis.call('TIME')
  return time_read
end

-- Issues the next token of a lock, and remembers it with the claim it is for: the server's clock in microseconds, or one
-- more than the last token if that is greater. With more, the last of so many more tokens, which are the claim's too.
-- Answers with nil for a claim that is marked as withdrawn or as released by force; with nil and an error where no greater token follows the last.
local function issue(record, time, claim, told, remember, more)
  local micros = time[2]
  if #micros < 6 then
    micros = string.rep('0', 6 - #micros) .. micros
  end
  local first = time[1] .. micros
  local token = more and string.format('%.0f', first + more) or first
  -- Nearly always this is all: it is remembered, and what was remembered before asks for nothing else. Both begin with
  -- sixteen digits, until the year 2286.
  local last = redis.pcall('SET', record, token .. ' ' .. claim .. ' ' .. told, 'EX', remember, 'GET')
  local before = type(last) == 'string'
  if not last or before and last < first and string.find(last, '^%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d ')
    and not string.find(last, '\n', 1, true) then
    return token
  end
  local bad
  if not before then
    -- A server before 6.2 does not do both in one command.
    last, bad = remembered(record)
    if bad then
      return nil, bad
    end
  end
  local number = last == '' and '0' or string.match(last, '^0*(%d+) ')
  -- A number of hundreds of digits has no sum.
  if not number or at_least(number, MOST) or more and at_least(string.format('%.0f', number + more), MOST) then
    if before then
      redis.call('SET', record, last, 'EX', remember)
    end
    return nil, refused(record, last)
  elseif at_least(number, first) then
    token = string.format('%.0f', number + 1 + (more or 0))
  end
  local marks, spent = {}
  for mark, till in string.gmatch(last, '\n(%S+) (%d+)') do
    if tonumber(till) >= tonumber(time[1]) then
      spent = spent or string.sub(mark, 2) == claim
      -- For a year at most, because another program may have written the mark.
      remember = math.max(remember, math.min(till - time[1] + 1, 31536000))
      marks[#marks + 1] = '\n' .. mark .. ' ' .. till
    end
  end
  if spent then
    redis.call('SET', record, last, 'EX', remember)
    return nil
  end
  redis.call('SET', record, token .. ' ' .. claim .. ' ' .. told .. table.concat(marks), 'EX', remember)
  return token
end
