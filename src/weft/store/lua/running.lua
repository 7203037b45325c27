-- List the attempts that workers have in hand, and those whose outcome the journal has not. (state)
-- Reply: name and record, or outcome, of each.
local ex = open_with(1, 1, 0)
local reply = {}

local function list(kind, first, last, wanted)
  for piece = first, last do
    local names = names_in(read(ex, kind .. piece))
    -- A piece of the list is shorter than a call may be.
    local got = names[1] and call('HMGET', ex.key, unpack(names)) or {}
    for index = 1, #names do
      if got[index] and find(wanted, sub(got[index], 1, 1), 1, true) then
        reply[#reply + 1] = names[index]
        reply[#reply + 1] = got[index]
      end
    end
  end
end

if ex.live and ex[RUNNING] > 0 then
  list('P', ex[PLACES_TAKEN[2]], ex[PLACES_TAKEN[3]], 'rp')
end
if ex.live and ex[UNRECORDED] > 0 then
  list('U', ex[NOT_RECORDED[2]], ex[NOT_RECORDED[3]], 'T')
end
return reply
