-- The free nodes of an execution, as many as have a place, appended to a flat reply:
-- their number; for each its name, its record, what it sees ('' all), a number of fields, and these.

local function free_names(ex)
  local names = {}
  local room = math.min(ex[WINDOW] - ex[PLACES], MOST_VALUES)
  if ex[STATE] ~= 'r' or ex[FREE] == 0 then
    return names
  end
  for piece = ex[FREE_NODES[2]], ex[FREE_NODES[3]] do
    local list = room > #names and read(ex, 'F' .. piece)
    if list then
      local listed = names_in(list)
      for index = 1, math.min(#listed, room - #names) do
        names[#names + 1] = listed[index]
      end
    end
  end
  return names
end

local function give(ex, reply)
  local names = free_names(ex)
  local unread = {}
  for index = 1, #names do
    local name = names[index]
    if ex.nodes[name] == nil and ex.value[name] == nil then
      unread[#unread + 1] = name
    end
  end
  if unread[1] then
    local got = call('HMGET', ex.key, unpack(unread))
    for index = 1, #unread do
      ex.value[unread[index]] = got[index]
    end
  end
  reply[#reply + 1] = #names
  for index = 1, #names do
    local name = names[index]
    local node = node_of(ex, name)
    reply[#reply + 1] = name
    reply[#reply + 1] = packed_node(node)
    reply[#reply + 1] = has_view(node) and read(ex, 'v' .. name) or ''
    local asked = ex.asked and ex.asked[name]
    if asked then
      local got = call('HMGET', ex.key, unpack(ARGV, asked[1], asked[2]))
      reply[#reply + 1] = #got
      for place = 1, #got do
        reply[#reply + 1] = got[place]
      end
    else
      reply[#reply + 1] = 0
    end
  end
end
