-- Moves of nodes that take or release a concurrency slot, each only if the attempt is the current one. (guard, execution)
-- ARGV, of each execution: generation, number of nodes; for each: name, attempt. No node is in a call twice.
-- Reply: an answer for each node.
local reply = {}

local function step(key, move, generation, from, to)
  for at = from, to, 2 do
    note(ARGV[at])
  end
  local _, refused = open(key, generation)
  if refused then
    return refused
  end
  for at = from, to, 2 do
    local name, answer = ARGV[at], REFUSED
    local record = value[name]
    if record then
      local phase, attempt, kept, rest = parsed(record)
      if attempt == ARGV[at + 1] then
        answer = move(name, record, phase, attempt, kept, rest)
      end
    end
    reply[#reply + 1] = answer
  end
  write()
end

-- `move` is given a name, the node's field, and its parts; it returns an answer.
local function answers(move)
  for index = 1, execution_count do
    local generation, count = argument(), number()
    local from, given = cursor, #reply
    cursor = from + 2 * count
    reset()
    local refused = guarded(index, step, move, generation, from, cursor - 1)
    for item = 1, refused and count or 0 do
      reply[given + item] = refused
    end
  end
  write_sets()
  return reply
end
