-- Marks a claim in a record, and drops marks that are too old or too many.
-- A mark is a line behind the record: '-' for a withdrawal or '!' for a forced release, the claim, and until when it
-- counts, in seconds of the server's clock.
local function mark(record, new, seconds, remember)
  local now, last, marks = tonumber(redis.call('TIME')[1]), redis.pcall('GET', record) or '0 -', {}
  if type(last) ~= 'string' then
    -- Another program's. It lets nobody in, and so no straggler either.
    return
  end
  for old, till in string.gmatch(last, '\n(%S+) (%d+)') do
    if tonumber(till) >= now and old ~= new then
      marks[#marks + 1] = '\n' .. old .. ' ' .. till
    end
  end
  marks[#marks + 1] = '\n' .. new .. ' ' .. string.format('%.0f', now + seconds)
  if #marks > 50 then
    table.remove(marks, 1)
  end
  -- A full server takes no value as the first that a script writes, but then it does.
  redis.call('EXPIRE', record, remember)
  redis.call('SET', record, string.match(last, '^[^\n]*') .. table.concat(marks), 'EX', remember)
end
