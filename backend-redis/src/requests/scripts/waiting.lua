-- Tells who waits in the queue of a lock, in order.
-- KEYS: lock, record, queue, waiters.
-- Answers with the server's clock in seconds and microseconds, then, for each waiter, its claim, when it came, in
-- microseconds, and what is known about it, or nil.
local time = redis.call('TIME')
local answer = { time[1], time[2] }
local arrivals = redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES')
for at = 1, #arrivals, 2 do
  answer[#answer + 1] = arrivals[at]
  answer[#answer + 1] = arrivals[at + 1]
  answer[#answer + 1] = redis.call('HGET', KEYS[4], arrivals[at])
end
return answer
