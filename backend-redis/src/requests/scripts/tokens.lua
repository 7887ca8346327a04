-- Tokens as text: Lua counts in ones no further than this.
local MOST = '9007199254740991'

-- Whether one number is at least as great as another. Neither begins with a zero.
local function at_least(one, other)
  return #one > #other or #one == #other and one >= other
end

-- The error for a record that only another program can have written: its key, and what is in it.
local function refused(record, last)
  local shown = type(last) == 'string' and string.sub(string.gsub(last, '[^ -~]', '?'), 1, 40) or ''
  return { err = 'BADRECORD \30' .. record .. '\30' .. shown .. '\30' }
end

-- What is remembered of a lock, '' where nothing is; nil and an error where that cannot be read.
local function remembered(record)
  local last = redis.pcall('GET', record)
  if type(last) == 'table' then
    return nil, string.find(last.err, 'WRONGTYPE', 1, true) and refused(record) or last
  end
  return last or ''
end

-- The token that a claim was granted, if it was the last; nil and an error where no script of tenure issued it.
local function issued(record, claim)
  local last, bad = remembered(record)
  local token, holder = string.match(last or '', '^(%d+) (%S+)')
  if holder ~= claim then
    return nil, bad
  elseif token ~= MOST and at_least(token, MOST) then
    return nil, refused(record, last)
  end
  return token
end
