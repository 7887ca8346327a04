-- Ends what a claim was granted by its attempts up to a number. If a request of these may still be on its way, marks
-- them, so that the request finds itself withdrawn. A later attempt is left alone, however late this comes.
-- KEYS: lock, record. ARGV: claim, the number, seconds to remember the record, seconds to keep a mark or nothing.
-- Answers with how many clients were told, or with -1 when there was nothing to end.
local call, lock, record, claim, attempt = redis.call, KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])
local last = text_at(record) or '0 -'
local granted, _, withdrawn = attempts(last, claim)
-- A record of another program lets nobody in, and so no straggler either.
if ARGV[4] and attempt > withdrawn and last ~= 0 then
  local now = tonumber(call('TIME')[1])
  local lines = { string.match(last, '^[^\n]*'), string.match(last, '\n[#+] %d+') or '' }
  for mark, till in string.gmatch(last, '\n(%S%S+) (%d+)') do
    if tonumber(till) >= now and string.sub(mark, 1, #claim + 2) ~= '-' .. claim .. '#' then
      lines[#lines + 1] = '\n' .. mark .. ' ' .. till
    end
  end
  lines[#lines + 1] = '\n-' .. claim .. '#' .. ARGV[2] .. ' ' .. string.format('%.0f', now + ARGV[4])
  if #lines > 52 then
    for at = 3, #lines do
      if string.sub(lines[at], 1, 2) == '\n-' then
        table.remove(lines, at)
        break
      end
    end
  end
  -- The record may be another holder's, with a longer lease.
  local remember = math.max(ARGV[3], math.ceil(call('PTTL', record) / 1000))
  -- A full server takes no value as the first that a script writes, but then it does.
  call('EXPIRE', record, remember)
  call('SET', record, table.concat(lines), 'EX', remember)
end
if text_at(lock) == claim and granted <= attempt then
  call('DEL', lock)
  return tell(lock)
end
return -1
