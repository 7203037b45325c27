-- Fire timers, and look at leases and at executions that were listed: what time has brought about of them. (guard, execution)
-- KEYS of its own: streams of tasks.
-- ARGV: length of a lease in microseconds, and of that of a queued task (0: it has none); for each execution: number of
--   members; for each: timer, lease or free; name (empty: the execution itself); of a lease the attempt; of a queued task
--   the number of its stream and the id of its entry, else 0 and nothing.
-- Reply, for each member: NOTHING; WOKEN, generation; DEADLINE, generation; PARKED_DUE, generation, attempt; or EXPIRED,
--   generation, plan, field.
local again_at, queued_for = string.format(WHOLE, now + number()), number()
local listed_again_at = string.format(WHOLE, now + PARKED_LISTED)
local queued_until = string.format(WHOLE, now + queued_for)
local free_gone = {}

local function fire_deadline(row)
  local _, deadline = match(row or poison(), ROW_PATTERN)
  if deadline == NO_TIME then
    timers_gone[#timers_gone + 1] = member(EMPTY)
    return NOTHING
  elseif tonumber(deadline or poison()) > now then
    add(timers, deadline, member(EMPTY))
    return NOTHING
  end
  -- Not taken out for good: if the commit that should follow is lost, it fires again.
  add(timers, again_at, member(EMPTY))
  return DEADLINE
end

local function fire(name)
  local record = read(name) or NO_TIME
  local phase, attempt, kept, due_at = parsed(record)
  if phase == PARKED then
    due_at = match(due_at, PARKED_PATTERN)
    local is_due = tonumber(due_at or poison()) <= now
    -- Not taken out for good, as a deadline.
    add(timers, is_due and listed_again_at or due_at, member(name))
    return is_due and PARKED_DUE or NOTHING, attempt
  elseif phase ~= TIMER then
    timers_gone[#timers_gone + 1] = member(name)
    return NOTHING
  elseif tonumber(due_at) > now then
    add(timers, due_at, member(name))
    return NOTHING
  end
  leave(name, record)
  free_in_time(name, attempt, kept, 0)
  return WOKEN
end

-- True if the task of a queued node is lost: its entry is not in its stream. One that the transport has sent by itself
-- cannot be looked for, and is taken for lost.
local function is_lost(rest, stream, entry)
  if stream == 0 then
    return match(rest, FIRST_NUMBER) .. COLON == rest
  end
  local found = redis.pcall('XRANGE', KEYS[OWN_KEY + stream - 1], entry, entry)
  return found.err ~= nil or found[1] == nil
end

local function look_at_lease(name, leased, stream, entry)
  local lease = lease_of(name, leased)
  local score = call('ZSCORE', KEYS[LEASES_KEY], lease)
  local record = read(name) or NO_TIME
  local phase, attempt, kept, rest = parsed(record)
  if not score or tonumber(score) > now then
    return NOTHING
  elseif attempt ~= leased then
    leases_gone[#leases_gone + 1] = lease
    return NOTHING
  elseif phase == QUEUED and queued_for > 0 and not is_lost(rest, stream, entry) then
    -- The task waits for a worker.
    add(leases, queued_until, lease)
    return NOTHING
  elseif phase == THROTTLED or phase == QUEUED and queued_for > 0 then
    -- Its task is lost: sent again, as the same attempt. Or its wait queue is lost.
    leave(name, record)
    free_in_time(name, attempt, without_flag(kept, RELEASED), 0)
    return WOKEN
  elseif phase == RUNNING or phase == ORPHANED then
    return EXPIRED
  end
  leases_gone[#leases_gone + 1] = lease
  return NOTHING
end

-- Of an execution that is not there nothing is listed any more; one that is being installed is left alone.
local function forget(id, from, to)
  for at = from, to, 5 do
    if ARGV[at] == SEEN_TIMER then
      timers_gone[#timers_gone + 1] = ARGV[at + 1] .. COLON .. id
    elseif ARGV[at] == SEEN_LEASE then
      leases_gone[#leases_gone + 1] = ARGV[at + 1] .. COLON .. ARGV[at + 2] .. COLON .. id
    else
      free_gone[#free_gone + 1] = id
    end
  end
end

local reply = {}

local function step(key, from, to)
  local got, refused = open(key)
  if not got then
    local fence = call('HGET', key, FENCE)
    if not fence or fence_of(fence).state ~= INSTALLING then
      forget(id_of(key), from, to)
    end
    return refused
  end
  local generation = fence_of(got[1]).generation
  for at = from, to, 5 do
    local kind, name, found, attempt = ARGV[at], ARGV[at + 1], NOTHING, nil
    if kind == SEEN_LEASE then
      found = look_at_lease(name, ARGV[at + 2], tonumber(ARGV[at + 3]), ARGV[at + 4])
    elseif kind == SEEN_TIMER then
      if name == EMPTY then
        found = fire_deadline(got[4])
      else
        found, attempt = fire(name)
      end
    elseif bounds() then
      found = WOKEN
    else
      free_gone[#free_gone + 1] = id_of(key)
    end
    reply[#reply + 1] = found
    if found ~= NOTHING then
      reply[#reply + 1] = tonumber(generation)
    end
    if found == PARKED_DUE then
      reply[#reply + 1] = attempt
    elseif found == EXPIRED then
      reply[#reply + 1] = read(PLAN) or poison()
      reply[#reply + 1] = value[name]
    end
  end
  write()
end

for index = 1, execution_count do
  local count = number()
  local from, given = cursor, #reply
  cursor = from + 5 * count
  reset()
  if guarded(index, step, from, cursor - 1) then
    for index = #reply, given + 1, -1 do
      reply[index] = nil
    end
    for index = 1, count do
      reply[given + index] = NOTHING
    end
  end
end
call_in_parts('ZREM', KEYS[FREE_KEY], free_gone)
write_sets()
return reply
