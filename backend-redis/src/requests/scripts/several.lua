-- Who holds a lock. The value of one that a claim holds alone is that claim. Otherwise it has a line that says how it is
-- held, and a line for each holder: its claim, until when it holds in ms of the server's clock, its token, how many permits
-- it has, and what people are told of it. Such a lock lives as long as the one of them that holds it longest.
-- There may be many of them, so lines are only taken apart where that is needed. Times have thirteen digits until the year
-- 2286, and are compared as text.

-- The server's clock, as TIME tells it, and in ms: the same throughout a script.
local time, now
local function clock()
  if not now then
    time = redis.call('TIME')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
  end
  return now
end

local function text(ms)
  return string.format('%.0f', ms)
end

-- The lines of a value, of those who still hold the lock, and their ends. A value that is not made of such lines, from its
-- first byte to its last, is the claim of one who holds the lock alone, whoever that is.
local function read(value)
  local held = { ends = {} }
  if type(value) ~= 'string' then
    return held
  end
  local how, lines = string.match(value, '^(%l[%l%d ]*)\n(.*)')
  if how == 'readers' or how == 'alone' or how and string.find(how, '^permits of [1-9]%d*$') then
    local this, size = text(clock()), 0
    for line, till in string.gmatch(lines, '(%S+ (%d+) %d+ %d+ [^\n]*)') do
      size = #till == #this and size + #line + 1 or size
      if till > this then
        held[#held + 1], held.ends[#held + 1] = line, till
      end
    end
    if size == #lines + 1 then
      held.how = how
      return held
    end
  end
  return { value, ends = {}, how = 'alone' }
end

-- The place of a claim among them.
local function find(held, claim)
  local begin = claim .. ' '
  for at, line in ipairs(held) do
    if line == claim or string.sub(line, 1, #begin) == begin then
      return at
    end
  end
end

-- Whether they admit one more, who wants to hold it so.
local function admits(held, how, take)
  if not held[1] then
    return true
  elseif held.how ~= how or how == 'alone' then
    return false
  end
  local left = tonumber(string.match(how, '%d+'))
  for _, line in ipairs(left and held or {}) do
    left = left - string.match(line, '^%S+ %d+ %d+ (%d+)')
  end
  return not left or left >= tonumber(take)
end

-- Whether they disagree with a claim about the number of permits.
local function disagrees(held, how)
  local permits = '^permits of'
  return held[1] and held.how ~= how and string.find(held.how, permits) and string.find(how, permits)
end

-- How long a claim that was refused may let pass, in ms: until a permit returns, or until all have gone.
local function refused_for(lock, held, how)
  local soonest = redis.call('PTTL', lock)
  if held.how == how and how ~= 'alone' then
    for _, till in ipairs(held.ends) do
      soonest = math.min(soonest, till - clock())
    end
  end
  return soonest
end

-- For how many seconds to remember the record of a lock that others hold too, perhaps for longer.
local function no_shorter(record, remember)
  return math.max(remember, math.ceil(redis.call('PTTL', record) / 1000))
end

-- Writes down who holds a lock.
local function keep(lock, held)
  local last = ''
  for _, till in ipairs(held.ends) do
    last = till > last and till or last
  end
  if held[1] then
    local value, left = held.how .. '\n' .. table.concat(held, '\n'), math.max(last - clock(), 1)
    -- A full server takes no value as the first that a script writes, but then it does.
    local rest = redis.call('PTTL', lock)
    redis.call('PEXPIRE', lock, rest > 0 and rest or left)
    redis.call('SET', lock, value, 'PX', left)
  else
    redis.call('DEL', lock)
  end
end

local function remove(held, at)
  table.remove(held, at)
  table.remove(held.ends, at)
end

-- Whether a lock with this value is held in a mode as strong as `how`. A holder that has it alone covers all.
local function covers(value, how)
  return string.find(value, how .. '\n', 1, true) == 1 or string.find(value, 'alone\n', 1, true) == 1
end

-- Has a claim of those who hold a lock beside each other hold it for so many ms from now.
local function extend(lock, held, at, lease)
  local claim, rest = string.match(held[at], '^(%S+) %d+ (.*)')
  held.ends[at] = text(clock() + lease)
  held[at] = claim .. ' ' .. held.ends[at] .. ' ' .. rest
  keep(lock, held)
end

-- Extends the claim's lease if its line is here, has not expired, and its mode covers `how`. Answers whether it did. If
-- this lease then ends last, as it nearly always does, the other lines are not parsed.
local function renewed(lock, value, claim, lease, how)
  local _, at = string.find(value, '\n' .. claim .. ' ', 1, true)
  local till = at and string.match(value, '^%d+', at + 1)
  if not till or till <= text(clock()) or not covers(value, how) then
    return false
  end
  local left = redis.call('PTTL', lock)
  if tonumber(lease) >= left then
    value = string.sub(value, 1, at) .. text(clock() + lease) .. string.sub(value, at + 1 + #till)
    redis.call('PEXPIRE', lock, left > 0 and left or lease)
    redis.call('SET', lock, value, 'PX', lease)
  else
    local held = read(value)
    local place = find(held, claim)
    if not place then
      return false
    end
    extend(lock, held, place, lease)
  end
  return true
end

-- Has one more hold a lock, for so many ms.
local function hold(lock, held, how, claim, token, take, told, lease)
  held.how = how
  if how == 'alone' then
    held[1] = claim
    redis.call('SET', lock, claim, 'PX', lease)
  else
    local till = text(clock() + lease)
    held[#held + 1], held.ends[#held + 1] = table.concat({ claim, till, token, take, told }, ' '), till
    keep(lock, held)
  end
end
