-- Ends whatever holds a lock has, tells those who wait, and marks the claims, so that their holders can be told why.
-- KEYS: lock, record; and where there is a queue: queue, waiters. ARGV: seconds to remember the record.
-- Answers as look does.
clock()
local value = redis.call('GET', KEYS[1])
if not value then
  return { time[1], time[2], false, -2, false }
end
local left, last, held = redis.call('PTTL', KEYS[1]), text_at(KEYS[2]), read(value)
if type(last) == 'string' and string.find(last, '^format ') then
  -- A later version wrote it. This one cannot note there which claims it released by force.
  return { err = 'BADRECORD \30' .. KEYS[2] .. '\30' .. string.sub(last, 1, 40) .. '\30' }
end
local latest, marks = string.match(last or '', '^%d+ (%S+)'), {}
for at, line in ipairs(held) do
  local claim = string.match(line, '^%S+')
  if claim and left > 0 and (held.ends[at] or claim == latest) then
    marks['!' .. claim] = math.ceil(left / 1000) + 1
  end
end
if next(marks) then
  mark(KEYS[2], marks, ARGV[1])
end
settle(KEYS, read(nil), ARGV[1])
return { time[1], time[2], value, left, last }
