-- Tells those who wait for a lock that it may be free. Answers with how many clients were told. In a Cluster PUBLISH is the
-- word for a message in the shard; servers before 7.0 do not know it, and tell everybody.
local function tell(lock)
  local told = redis.pcall(PUBLISH, lock, '')
  if type(told) ~= 'number' then
    told = redis.pcall('PUBLISH', lock, '')
  end
  return type(told) == 'number' and told or 0
end
