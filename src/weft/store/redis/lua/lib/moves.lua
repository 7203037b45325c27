-- Moves of nodes that give a place or take one, each only if the attempt is the current one. (guard, execution)
-- ARGV, of each execution: id, generation, number of nodes; for each: name, attempt. No node is in a call twice.
-- Reply: an answer for each node.
local reply = {}

local function step(key, move, id, generation, from, count)
  local fields = {MARK, IN_FLIGHT, IN_HAND, FREE_LIST}
  for item = 0, count - 1 do
    fields[item + 5] = ARGV[from + 2 * item]
  end
  local got = fetch(key, fields)
  local refused, state = refusal(got[1], generation)
  if refused then
    return refused
  end
  local ex = execution(key, id, got, {})
  ex.state = state
  for item = 0, count - 1 do
    local name, record, answer = ARGV[from + 2 * item], got[item + 5], REFUSED
    if record then
      local phase, attempt, kept, rest = parsed(record)
      if attempt == ARGV[from + 2 * item + 1] then
        answer = move(ex, name, record, phase, attempt, kept, rest)
      end
    end
    reply[#reply + 1] = answer
  end
  write(ex)
end

-- `move` is given an execution, a name, the node's field, and its parts; it returns an answer.
local function answers(move)
  for place = 1, execution_count do
    local id, generation, count = argument(), argument(), number()
    local from, given = cursor, #reply
    cursor = from + 2 * count
    local refused = guarded(place, step, move, id, generation, from, count)
    for item = 1, refused and count or 0 do
      reply[given + item] = refused
    end
  end
  write_sets()
  return reply
end
