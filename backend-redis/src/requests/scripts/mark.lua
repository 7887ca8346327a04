-- Marks claims in a record, and drops marks that are too old. A mark is a line behind the record: '-' for a withdrawal
-- or '!' for a forced release, the claim, and until when it counts, in seconds of the server's clock. `new` has for each
-- mark how many seconds it counts. There are as many forced releases as holders; of withdrawals, the last 50 are kept.
local function mark(record, new, remember)
  local now, last = tonumber(redis.call('TIME')[1]), text_at(record) or '0 -'
  if last == 0 or not string.find(last, '^%d') then
    -- Another program or a later version wrote it. No claim is granted beside it, and so no late one.
    return
  end
  local marks, withdrawals, oldest = {}, 0
  local function add(mark, till)
    marks[#marks + 1] = '\n' .. mark .. ' ' .. till
    if string.sub(mark, 1, 1) == '-' then
      withdrawals, oldest = withdrawals + 1, oldest or #marks
    end
  end
  for old, till in string.gmatch(last, '\n(%S+) (%d+)') do
    if tonumber(till) >= now and not new[old] then
      add(old, till)
    end
  end
  for mark, seconds in pairs(new) do
    add(mark, string.format('%.0f', now + seconds))
  end
  if withdrawals > 50 then
    table.remove(marks, oldest)
  end
  remember = no_shorter(record, remember)
  -- A full server takes no value as the first that a script writes, but then it does.
  redis.call('EXPIRE', record, remember)
  redis.call('SET', record, string.match(last, '^[^\n]*') .. table.concat(marks), 'EX', remember)
end
