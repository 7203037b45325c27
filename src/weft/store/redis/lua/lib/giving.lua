-- The free nodes of an execution, as many as have a place, appended to the reply: their number; for each its name, its field,
-- and what it sees (empty: all). (guard, execution)
local reply = {}

local function give(ex)
  local head, tail = bounds(ex)
  local room = math.min(ex.window - ex.in_flight, MOST_VALUES)
  if not head or ex.state ~= OPEN or room <= 0 then
    reply[#reply + 1] = 0
    return
  end
  local names = {}
  for piece = head, tail do
    local in_piece = room > #names and names_in(read(ex, FREE_LIST .. piece)) or {}
    for index = 1, math.min(#in_piece, room - #names) do
      names[#names + 1] = in_piece[index]
    end
  end
  local got = names[1] and fetch(ex.key, names)
  local last = #reply + 1
  reply[last] = #names
  for index = 1, #names do
    local name, record = names[index], got[index]
    local _, _, kept = parsed(record or poison())
    reply[last + 1], reply[last + 2] = name, record
    reply[last + 3] = find(kept or poison(), VIEWED, 1, true) and read(ex, VIEW .. name) or EMPTY
    last = last + 3
  end
end

-- Take back what was appended for an execution that turned out to be poison.
local function take_back(from)
  for index = #reply, from + 1, -1 do
    reply[index] = nil
  end
end

local function window_of(plan)
  return tonumber(match(plan or poison(), PLAN_PATTERN)) or poison()
end
