-- A queue: its waiters in order of arrival, by the server's clock, and for each until when it lives, unless it shows up
-- again, its lease, what people are told of it, and the channel on which its client listens.
local function leave(keys, claim)
  if redis.call('ZREM', keys[3], claim) == 1 then
    redis.call('HDEL', keys[4], claim)
  end
end

-- Makes the first waiter that lives and listens the holder, and tells it so; answers with its claim. The lock then
-- stands for a moment, until that client has renewed it. When the first is `asker`, who is here already, nothing is done.
local function hand_over(keys, remember, asker)
  local call, lock, record, queue, waiters = redis.call, keys[1], keys[2], keys[3], keys[4]
  local claim, at, time, now = call('ZRANGE', queue, 0, 0)[1], 0
  while claim and claim ~= asker do
    if not time then
      time = call('TIME')
      now = time[1] * 1000 + math.floor(time[2] / 1000)
    end
    local till, lease, told, inbox = string.match(call('HGET', waiters, claim) or '', '^(%d+) (%d+) ([^\n]*)\n(.*)')
    local token = till and tonumber(till) >= now and issue(record, time, claim, told, remember)
    if not token then
      leave(keys, claim)
    else
      local word = string.format('turn %s %s %s%06d', claim, token, time[1], time[2])
      local heard = redis.pcall('PUBLISH', inbox, word)
      if type(heard) == 'number' and heard > 0 then
        call('SET', lock, claim, 'PX', math.min(lease, STANDS))
        leave(keys, claim)
        -- Should this one be dead, the next is to look as soon as the lock is free again.
        local second = call('ZRANGE', queue, at, at)[1]
        if second then
          inbox = string.match(call('HGET', waiters, second) or '', '\n(.*)')
          if inbox then
            redis.pcall('PUBLISH', inbox, 'look ' .. second .. ' ' .. math.min(lease, STANDS))
          end
        end
        return claim
      end
      -- Its connection is broken: it keeps its place, and others go first until it is back.
      at = at + 1
    end
    claim = call('ZRANGE', queue, at, at)[1]
  end
  return claim
end

-- Gives a lock to the next in the queue, or frees it. Answers with how many clients were told that it is free.
local function free(keys, remember)
  if hand_over(keys, remember) then
    return 0
  end
  redis.call('DEL', keys[1])
  local told = redis.pcall('PUBLISH', keys[1], '')
  return type(told) == 'number' and told or 0
end
