-- A queue: its waiters in order of arrival, by the server's clock, and for each until when it lives, unless it shows up
-- again, its lease, how many permits it wants and how it wants to hold the lock; what people are told of it; and the channel
-- on which its client listens.
local function give_up(keys, claim)
  local stood = redis.call('ZREM', keys[3], claim) == 1
  if stood then
    redis.call('HDEL', keys[4], claim)
  end
  return stood
end

-- Hands a lock to the waiters whom its holders admit, in order, and tells them so; up to `asker`, who is here already. What
-- is handed over stands for a moment, until that client has renewed it. Answers with the claim that is next, and with
-- whether anything was handed over.
local function serve(keys, held, remember, asker)
  local call, lock, record, queue, waiters = redis.call, keys[1], keys[2], keys[3], keys[4]
  local at, handed = 0
  local claim = call('ZRANGE', queue, 0, 0)[1]
  while claim and claim ~= asker do
    local till, lease, take, how, told, inbox =
      string.match(call('HGET', waiters, claim) or '', '^(%d+) (%d+) (%d+) ([^\n]*)\n([^\n]*)\n(.*)')
    if not till or tonumber(till) < clock() then
      give_up(keys, claim)
    elseif not admits(held, how, take) then
      -- Should the one before it be dead, it is to look as soon as that has run out.
      if handed then
        redis.pcall('PUBLISH', inbox, 'look ' .. claim .. ' ' .. handed)
      end
      break
    else
      clock()
      remember = held[1] and no_shorter(record, remember) or remember
      local token, bad = issue(record, time, claim, told, remember)
      if bad then
        -- It is told when it asks. Whoever releases the lock has done so.
        break
      end
      local word = token and string.format('turn %s %s %s%06d', claim, token, time[1], time[2])
      local heard = token and redis.pcall('PUBLISH', inbox, word)
      if not token then
        give_up(keys, claim)
      elseif type(heard) == 'number' and heard > 0 then
        handed = math.min(lease, STANDS)
        hold(lock, held, how, claim, token, take, told, handed)
        give_up(keys, claim)
      else
        -- Its connection is broken: it keeps its place, and others go first until it is back.
        at = at + 1
      end
    end
    claim = call('ZRANGE', queue, at, at)[1]
  end
  return claim, handed
end

-- Serves those whom the holders of a lock admit now. Answers with how many clients without a queue were told.
local function wake(keys, held, remember)
  serve(keys, held, remember)
  return held[1] and 0 or tell(keys[1])
end

-- The same after somebody has gone, and writes down who holds the lock.
local function settle(keys, held, remember)
  keep(keys[1], held)
  return wake(keys, held, remember)
end
