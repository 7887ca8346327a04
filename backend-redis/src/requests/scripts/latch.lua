-- Takes one step at a latch.
-- KEYS: latch, a hash: its id, how many parties it waits for, and a field for each that has counted down.
-- ARGV: nothing to look; how many parties, the party, and an id for the latch if there is none yet; or 'remove', the id.
-- Answers with how many parties it waits for, as text, or 0 when there is no latch; how many have counted down; and its id,
-- '' when it has none.
local latch = KEYS[1]
local id, of = redis.call('HGET', latch, 'id') or '', redis.call('HGET', latch, 'of')
if ARGV[1] == 'remove' then
  -- However late this comes, it removes no later latch.
  if id == ARGV[2] then
    redis.call('DEL', latch)
    id, of = '', false
  end
elseif ARGV[2] then
  if not of then
    id, of = ARGV[3], ARGV[1]
    redis.call('HSET', latch, 'id', id, 'of', of)
  end
  if of == ARGV[1] then
    redis.call('HSETNX', latch, 'party ' .. ARGV[2], '')
  end
end
local counted = redis.call('HLEN', latch) - (of and 1 or 0) - (id ~= '' and 1 or 0)
return { of or 0, counted, id }
