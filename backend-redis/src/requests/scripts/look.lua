-- Tells who holds locks.
-- KEYS: lock, record, lock, record, ...
-- Answers with the server's clock in seconds and microseconds, then value, lease left in ms, and record of each lock;
-- nil for each that is missing, and 0 for each of another type.
local time = redis.call('TIME')
local answer = { time[1], time[2] }
for key = 1, #KEYS, 2 do
  answer[#answer + 1] = text_at(KEYS[key])
  answer[#answer + 1] = redis.call('PTTL', KEYS[key])
  answer[#answer + 1] = text_at(KEYS[key + 1])
end
return answer
