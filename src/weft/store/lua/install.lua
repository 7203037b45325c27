-- Put executions into the store: several in one call, or a large one in several calls; until the last of these it is
-- there for nobody. (state)
-- ARGV: whether this is the first call, whether it is the last; token; what to do with ready nodes: for how long to hold
--   them in limbo, in microseconds (0: they are free); for how many microseconds the first epoch may be installed. For each
--   execution: how many arguments follow, generation, epoch, seq, state, window, unsettled, deadline (0 none), updated at,
--   number of fields; each field with its value; the ready nodes, each with its name and: attempt, not before, failures,
--   losses, issued, whether what it sees was written down, whether somebody may have it in hand: only then it is held in
--   limbo.
-- Reply: an answer for each.
local is_first, is_last, given = argument() == '1', argument() == '1', argument()
local limbo_for, first_for = number(), number()
local entered = {}

local function install(ex, generation, epoch, seq, state, window, unsettled, deadline, updated)
  if not is_first then
    if ex[STATE] ~= 'i' or ex[EPOCH] ~= epoch then
      return REFUSED
    end
  elseif ex[STATE] ~= '' and epoch <= ex[EPOCH] then
    return REFUSED
  elseif epoch == 1 and now >= updated + first_for then
    -- All of it may be over by now, and its mark be gone.
    return REFUSED
  else
    if ex.live then
      unsettled_by = unsettled_by - ex[UNSETTLED]
    end
    call('UNLINK', ex.key)
    ex.value, ex.nodes = {F0 = false, P0 = false}, {}
    local fresh = {'i', generation, epoch, seq, window, 0, 0, 0, unsettled, 0, 0, 0, 0, 0, deadline, updated, 0}
    for index = 1, META_LAST do
      ex[index] = fresh[index]
    end
  end
  ex.dirty = true
  if is_last then
    ex[STATE] = state
    unsettled_by = unsettled_by + unsettled
    if deadline ~= 0 then
      timers[member(ex, '')] = deadline
    end
    entered[#entered + 1] = updated
    entered[#entered + 1] = ex.id
  end
  return YES
end

local function put_ready(ex, name, numbers)
  local attempt, not_before, failures, losses, issued, has_seen, in_hand = unpacked('<dddddBB', numbers)
  local node = {'w', 2 * has_seen, attempt, failures, losses, issued, 0, ''}
  -- Compared with the server's time now, not with that of the snapshot.
  if limbo_for == 0 or in_hand == 0 or not_before > now then
    free_in_time(ex, name, node, not_before)
  else
    node[PHASE] = 'l'
    take_place(ex, name, node)
    leases[member(ex, name)] = now + limbo_for
    put(ex, name, node)
  end
end

local reply = {}
for index = 1, execution_count do
  local at = cursor
  local length, generation, epoch, seq, state, window, unsettled, deadline, updated, fields =
    unpacked('<I4dddc1ddddI4', ARGV[at])
  local ex = open_with(index, 1, 0)
  local answer = REFUSED
  if token == given then
    answer = install(ex, generation, epoch, seq, state, window, unsettled, deadline, updated)
  end
  if answer == YES then
    local ready_from = at + 1 + 2 * fields
    for field = at + 1, ready_from - 2, 2 do
      change(ex, ARGV[field], ARGV[field + 1])
    end
    for ready = ready_from, at + length - 1, 2 do
      put_ready(ex, ARGV[ready], ARGV[ready + 1])
    end
  end
  reply[index] = answer
  cursor = at + 1 + length
end
call_in_parts('ZADD', KEYS[5], entered)
flush()
return reply
