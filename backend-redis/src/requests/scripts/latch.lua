-- Takes one step at a latch.
-- KEYS: latch, a hash: how many parties it waits for, and a field for each that has counted down.
-- ARGV: nothing to look; 'remove'; or how many parties, the party.
-- Answers with how many parties it waits for, as text, or 0 when there is no latch, and how many have counted down.
if ARGV[1] == 'remove' then
  redis.call('DEL', KEYS[1])
end
local of = redis.call('HGET', KEYS[1], 'of')
if ARGV[2] and not of then
  of = ARGV[1]
  redis.call('HSET', KEYS[1], 'of', of)
end
if ARGV[2] and of == ARGV[1] then
  redis.call('HSETNX', KEYS[1], 'party ' .. ARGV[2], '')
end
return { of or 0, math.max(redis.call('HLEN', KEYS[1]) - 1, 0) }
