-- Goes on with what follows unless a later holder has been here. The fence is the last key, the token the last argument.
local fence, token = table.remove(KEYS), table.remove(ARGV)
local greatest = redis.call('GET', fence)
if greatest then
  if not string.find(greatest, '^[1-9]%d*$') then
    return redis.error_reply('NOTAFENCE the key ' .. fence .. ' does not hold a fencing token')
  end
  -- Compared as texts, because Lua's numbers would round tokens from 2^53 on.
  if #greatest > #token or (#greatest == #token and greatest > token) then
    return redis.error_reply('STALE ' .. greatest)
  end
end
redis.call('SET', fence, token)
