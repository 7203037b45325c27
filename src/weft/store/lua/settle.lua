-- Take completions that the journal has not, and queue tasks of nodes that are free then; answer with all free nodes of
-- each execution. (state, queued, ahead, given, merge)
-- ARGV: for each execution the number of fields to read, and these; the number of completions. For each: how many
--   arguments follow, execution, generation, whether to give the free nodes, number of units; the units, each with the
--   number of its children:
--     t; name, outcome, output ('' none of its own), children
--     c; name, children
--   Then as in ahead.
-- Reply: an answer for each (WAS_THERE: it was taken before); then for each execution whose free nodes are to be given:
--   execution; row, digest, input (nil: elsewhere), where there are free nodes; how many were queued and their names; and
--   these.
local WAS_THERE = 5

local function take(ex, children)
  local name, outcome, output = argument(), argument(), argument()
  local _, state, answered = unpacked(OUTCOME, outcome)
  local node = node_of(ex, name)
  local known = not node and read(ex, name)
  local answer = YES
  if known then
    -- The same again: its state, and the attempt that it is the result of.
    if sub(known, 2, 6) ~= sub(outcome, 2, 6) then
      return REFUSED
    end
    answer = WAS_THERE
  else
    local phase = node and node[PHASE]
    local held = ex[MODE] ~= 1 or find(read(ex, 'H') or '', ',' .. name .. ',', 1, true)
    if held or not node or node[ATTEMPT] ~= answered or not (phase == 'r' or phase == 'p' or phase == 'l') then
      return REFUSED
    end
    local piece = list_add(ex, NOT_RECORDED, name)
    if ex[UNRECORDED] == 0 then
      with_unrecorded[ex.id] = now_text
    end
    ex[UNRECORDED] = ex[UNRECORDED] + 1
    settle_as(ex, name, node, pack(OUTCOME, 'T', state, answered, piece) .. sub(outcome, OUTCOME_BYTES + 1), output)
  end
  for _ = 1, children do
    arrive(ex, true)
  end
  return answer
end

open_all()
local reply = {}
for item = 1, number() do
  local at = cursor
  local length, index, generation, wanted, units = unpacked('<I4I2dBI2', ARGV[at])
  local ex, answer = executions[index], YES
  if not ex.live then
    answer = missing(ex, generation, 0)
  elseif generation ~= ex[GENERATION] then
    answer = generation > ex[GENERATION] and UNKNOWN or REFUSED
  else
    cursor = at + 1
    for _ = 1, units do
      local kind, children = unpacked('<c1I2', argument())
      if kind == 'c' then
        free_more(ex, children)
      else
        answer = take(ex, children)
      end
      if answer == REFUSED then
        break
      end
    end
  end
  local is_taken = answer == YES or answer == WAS_THERE
  ex.wanted = ex.wanted or (wanted == 1 and is_taken)
  ex.refused = ex.refused or not is_taken
  reply[item] = answer
  cursor = at + 1 + length
end
queue_ahead()
flush()
for index = 1, execution_count do
  local ex = executions[index]
  if ex.wanted then
    reply[#reply + 1] = index
    -- Where nothing is free, nobody asks for more of it.
    local has_free = ex[FREE] > 0
    reply[#reply + 1] = has_free and read(ex, 'x') or ''
    reply[#reply + 1] = has_free and read(ex, 'h') or ''
    reply[#reply + 1] = has_free and read(ex, 'i')
    tell_queued(ex, reply)
    give(ex, reply)
  end
end
return reply
