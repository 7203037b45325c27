-- Put executions into the store: several in one call, or a large one in several calls; until the last of these it is
-- there for nobody. Queue tasks of nodes that are free then. (guard, execution, queueing, counting)
-- ARGV: as in queueing; whether this is the first call, whether it is the last; for how long ready nodes are orphaned,
--   in microseconds (0: they are free); for how many microseconds the first epoch may be installed; for how many seconds a
--   hash is kept; incarnation_id. For each execution:
--     generation:epoch:state unsettled values ready tasks window deadline     (deadline 0: none)
--     when it was updated
--     its values: each a field and a text
--     its ready nodes: each `name attempt kept not-before in-hand`; it is orphaned only where a worker may have it in hand;
--       or `name attempt kept 0 parked rest`, as a parked node's field has it
--     its tasks
-- Reply: an answer for each.
local is_first, is_last = number() == 1, number() == 1
local orphaned_for, first_for, keep, given = number(), number(), argument(), argument()
local orphaned_until = string.format(WHOLE, now + orphaned_for)

local function judged(fence, generation, epoch, updated)
  if incarnation_id ~= given or incarnation_id == EMPTY then
    return REFUSED
  elseif not is_first then
    return fence ~= generation .. COLON .. incarnation_id .. COLON .. epoch .. COLON .. INSTALLING and REFUSED or nil
  end
  -- What an earlier incarnation, or nobody of weft, has left there is written over.
  local _, incarnation, known = match(fence or EMPTY, FENCE_PATTERN)
  if incarnation == incarnation_id and tonumber(epoch) <= tonumber(known) then
    return REFUSED
  elseif tonumber(epoch) == 1 and now >= updated + first_for then
    -- All of it may be over by now, and its tombstone be gone.
    return REFUSED
  end
end

local function put_ready(name, attempt, kept, not_before, in_hand, rest)
  if in_hand == IS_PARKED then
    park(name, attempt, kept, rest)
    return
  end
  -- Compared with the server's time now, not with that of the snapshot.
  if orphaned_for == 0 or in_hand ~= MAY_BE_IN_HAND or tonumber(not_before) > now then
    free_in_time(name, attempt, kept, not_before)
  else
    put(name, ORPHANED .. attempt .. COLON .. kept .. COLON)
    counts = counts + 1
    add(leases, orphaned_until, lease_of(name, attempt))
  end
end

-- Write an execution, or a part of it. Nothing is read of what was there before the first.
local function install(part)
  reset()
  hash, state, counts, free_list = part.key, part.state, 0, false
  note(FREE_LIST .. 0)
  if not is_first then
    local got = fetch(hash, fields, field_count)
    counts, free_list, value[FREE_LIST .. 0] = count_of(got[2]), got[3], got[FIXED_FIELDS + 1]
  end
  counts_before = counts
  local at = part.from
  for _ = 1, part.values do
    put(ARGV[at], ARGV[at + 1])
    at = at + 2
  end
  put(FENCE, part.fence)
  for _ = 1, part.ready do
    put_ready(match(ARGV[at], READY_PATTERN))
    at = at + 1
  end
  for task = at, at + 2 * part.tasks - 1, 2 do
    queue_task(about_of(ARGV[task]), ARGV[task + 1], part.window)
  end
  if is_first then
    call('UNLINK', hash)
  end
  write()
  if is_first then
    call('EXPIRE', hash, keep)
  end
end

-- Judged first, and counted: that is a write which a server without memory refuses, before anything is taken away.
local reply, entered, parts = {}, {}, {}
for index = 1, execution_count do
  local key = KEYS[hashes + index]
  local generation, epoch, to_be, unsettled, values, ready, tasks, window, deadline = match(argument(), INSTALL_PATTERN)
  local updated = argument()
  local from = cursor
  cursor = from + 2 * values + ready + 2 * tasks
  local got = redis.pcall('HMGET', key, FENCE, ROW)
  local known = not got.err and got[1]
  local refused = judged(known, generation, epoch, tonumber(updated))
  reply[index] = refused or YES
  if not refused then
    parts[#parts + 1] = {
      key = key, fence = generation .. COLON .. incarnation_id .. COLON .. epoch .. COLON .. (is_last and to_be or INSTALLING),
      state = to_be, from = from, values = values, ready = ready, tasks = tasks, window = tonumber(window),
    }
    local _, incarnation, _, letter = match(known or EMPTY, FENCE_PATTERN)
    if incarnation == incarnation_id and letter ~= CLOSED and letter ~= INSTALLING then -- until now it was there
      local _, _, before = match(got[2] or EMPTY, ROW_PATTERN)
      unsettled_by = unsettled_by - tonumber(before or 0)
    end
    if is_last then
      unsettled_by = unsettled_by + unsettled
      add(entered, updated, id_of(key))
      if deadline ~= NO_TIME then
        add(timers, deadline, COLON .. id_of(key))
      end
    end
  end
end
write_count()
for index = 1, #parts do
  install(parts[index])
end
call_in_parts('ZADD', KEYS[ACTIVE_KEY], entered)
write_sets()
return reply
