-- Put an execution into the store, in one call or in several: until the last it is there for nobody. (state)
-- ARGV: whether this is the first call, whether it is the last; token, generation, epoch, seq, state, window, unsettled,
--   deadline (0 none), updated at, whether it is committed at checkpoints, its
--   nodes in all, how many of them are settled; what to do with ready nodes: for how long to hold them in limbo, in microseconds (0: they
--   are free); for how many microseconds the first epoch may be installed; number of fields, each with its value; number of ready nodes, for each: name, attempt, not before, failures,
--   losses, issued, whether what it sees was written down.
-- Reply: an answer.
local ex = open_with(1, 1, 0)
local is_first, is_last, given = argument() == '1', argument() == '1', argument()
local generation, epoch, seq, state, window = number(), number(), number(), argument(), number()
local unsettled, deadline, updated = number(), number(), number()
local at_checkpoints, total, outcomes, limbo_for, first_for = number(), number(), number(), number(), number()
if token ~= given then
  return REFUSED
end
if not is_first then
  if ex[STATE] ~= 'i' or ex[EPOCH] ~= epoch then
    return REFUSED
  end
elseif ex[STATE] ~= '' and epoch <= ex[EPOCH] then
  return REFUSED
elseif epoch == 1 and now >= updated + first_for then
  -- All of it may be over by now, and its mark be gone.
  return REFUSED
elseif ex.live and ex[UNRECORDED] > 0 and ex[GENERATION] == generation then
  -- They came after the rows were read, and would be lost.
  return REFUSED
else
  if ex.live then
    unsettled_by = -ex[UNSETTLED]
  end
  call('UNLINK', ex.key)
  ex.value, ex.nodes = {F0 = false, P0 = false}, {}
  if ex.live and ex[UNRECORDED] > 0 then
    with_unrecorded[ex.id] = false
  end
  local fresh = {'i', generation, epoch, seq, window, 0, 0, 0, unsettled, 0, 0, 0, 0, 0, deadline, updated, 0,
    at_checkpoints, total, outcomes, 0, 0, 0}
  for index = 1, META_LAST do
    ex[index] = fresh[index]
  end
end
ex.dirty = true
for _ = 1, number() do
  local field = argument()
  change(ex, field, argument())
end
for _ = 1, number() do
  local name, node, not_before = argument(), new_waiting(), 0
  node[ATTEMPT], not_before, node[FAILURES], node[LOSSES], node[ISSUED] = number(), number(), number(), number(), number()
  node[FLAGS] = argument() == '1' and 2 or 0
  -- Compared with the server's time now, not with that of the snapshot.
  if limbo_for == 0 or not_before > now then
    free_in_time(ex, name, node, not_before)
  else
    node[PHASE], node[REST] = 'l', ''
    take_place(ex, name, node)
    leases[member(ex, name)] = now + limbo_for
    put(ex, name, node)
  end
end
if is_last then
  ex[STATE] = state
  unsettled_by = unsettled_by + unsettled
  if deadline ~= 0 then
    timers[member(ex, '')] = deadline
  end
  call('ZADD', KEYS[5], updated, ex.id)
end
flush()
return YES
