-- Frees a lock, and tells those who wait for it. Answers with how many clients were told.
local function free(keys)
  redis.call('DEL', keys[1])
  local told = redis.pcall('PUBLISH', keys[1], '')
  return type(told) == 'number' and told or 0
end
