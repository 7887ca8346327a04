-- Where there is no queue. A key, if it stands, says that somebody waits to have the lock alone: nobody is admitted beside
-- its holders meanwhile.

-- Ends what a claim that waited has left behind. Answers with nil: nobody stands behind it.
local function give_up(keys)
  if keys[3] and redis.call('DEL', keys[3]) == 1 then
    tell(keys[1])
  end
end

-- Has those who wait ask again. Answers with how many clients were told.
local function wake(keys)
  return tell(keys[1])
end

-- Writes down who holds a lock after somebody has gone, and has those who wait ask again if there is room for any.
local function settle(keys, held)
  keep(keys[1], held)
  return held[1] and held.how == 'readers' and 0 or tell(keys[1])
end
