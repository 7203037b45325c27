-- Merge the journal's rows into executions, and queue tasks of nodes that are free then; answer with all free nodes of
-- each. One that has ended is let go. (state, queued, ahead, given, merge,
-- closed)
-- ARGV: as in closed; for each execution the number of fields to read, and these; the number of settlements. For each: how many
--   arguments follow, execution, generation, epoch, seq, whether to give the free nodes, state, unsettled, deadline (0
--   none), updated at, number of units; row ('' not to be merged); the units, each with the number of its children:
--     s; name, outcome, output ('' none of its own), children    a settled row
--     c; name, children                                          more children of a settled row
--     u; name; attempt, not before, failures, losses, issued     an unsettled row
--   Then as in ahead.
-- Reply: an answer for each settlement, WAS_GONE where there was nothing to let go; then for each execution whose free nodes are to be given: execution, seq,
--   row ('' as given), how many were queued and their names, and these.

local function settle(ex, children)
  local name, outcome, output = argument(), argument(), argument()
  local node = node_of(ex, name)
  local known = not node and read(ex, name)
  if not known then
    settle_as(ex, name, node, outcome, output)
  end
  -- Also of a row that was here before: whoever brought it may not have come to all its children.
  local is_news = not known or byte(known, 2) == byte(outcome, 2)
  for _ = 1, children do
    arrive(ex, is_news)
  end
end

local function renew(ex)
  local name = argument()
  local attempt, not_before, failures, losses, issued = unpacked('<ddddd', argument())
  local node = node_of(ex, name)
  if not node then
    if read(ex, name) then
      return
    end
    node = new_waiting()
    put(ex, name, node)
  end
  if attempt < node[ATTEMPT] then
    return
  elseif attempt == node[ATTEMPT] then
    if issued > node[ISSUED] then
      node[ISSUED] = issued
      put(ex, name, node)
    end
    return
  end
  node[ATTEMPT], node[FAILURES], node[LOSSES], node[ISSUED] = attempt, failures, losses, issued
  put(ex, name, node)
  if node[PHASE] == 'w' then
    node[REST] = pack('<d', not_before) .. sub(node[REST], 9)
    return
  end
  -- Another attempt of a node that was ready before: it waits for its time, or is free again.
  leave_phase(ex, name, node)
  set_released(node, false)
  free_in_time(ex, name, node, not_before)
end

local WAS_GONE = 7
local UNITS = {s = settle, c = free_more, u = renew}
read_marks()
open_all()
local reply = {}
for item = 1, number() do
  local at = cursor
  local length, index, generation, epoch, seq, wanted, state, unsettled, deadline, updated, units =
    unpacked('<I4I2dddBc1dddI2', ARGV[at])
  local ex = executions[index]
  if state == 't' then
    local answer, was_there = let_go(ex, generation, epoch)
    reply[item] = answer == YES and not was_there and WAS_GONE or answer
    ex.wanted = ex.wanted and ex.live
  elseif not ex.live then
    reply[item] = missing(ex, generation, epoch)
  elseif ex[EPOCH] < epoch or ex[GENERATION] < generation then
    reply[item] = UNKNOWN
  elseif ex[EPOCH] > epoch or ex[GENERATION] > generation then
    reply[item] = REFUSED
  else
    reply[item] = YES
    ex.wanted = wanted == 1 or ex.wanted
    local row = ARGV[at + 1]
    if row ~= '' and seq >= ex[SEQ] then
      unsettled_by = unsettled_by + unsettled - ex[UNSETTLED]
      ex[SEQ], ex[STATE], ex[UNSETTLED], ex[UPDATED] = seq, state, unsettled, updated
      ex.row_given, ex.dirty = true, true
      if deadline ~= 0 and deadline ~= ex[DEADLINE] then
        ex[DEADLINE] = deadline
        timers[member(ex, '')] = deadline
      end
      change(ex, 'x', row)
    end
    cursor = at + 2
    for _ = 1, units do
      local kind, children = unpacked('<c1I2', argument())
      UNITS[kind](ex, children)
    end
  end
  ex.refused = ex.refused or reply[item] ~= YES
  cursor = at + 1 + length
end
queue_ahead()
write_closed()
flush()
for index = 1, execution_count do
  local ex = executions[index]
  if ex.wanted then
    reply[#reply + 1] = index
    reply[#reply + 1] = ex[SEQ]
    reply[#reply + 1] = ex.row_given and '' or read(ex, 'x')
    tell_queued(ex, reply)
    give(ex, reply)
  end
end
return reply
