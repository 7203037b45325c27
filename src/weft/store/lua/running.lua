-- List the attempts that workers have in hand. (state)
-- Reply: name and record of each.
local ex = open_with(1, 1, 0)
local reply = {}

if ex.live and ex[RUNNING] > 0 then
  for piece = ex[PLACES_TAKEN[2]], ex[PLACES_TAKEN[3]] do
    local names = names_in(read(ex, 'P' .. piece))
    -- A piece of the list is shorter than a call may be.
    local got = names[1] and call('HMGET', ex.key, unpack(names)) or {}
    for index = 1, #names do
      local phase = got[index] and sub(got[index], 1, 1)
      if phase == 'r' or phase == 'p' then
        reply[#reply + 1] = names[index]
        reply[#reply + 1] = got[index]
      end
    end
  end
end
return reply
