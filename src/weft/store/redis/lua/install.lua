-- Put executions into the store: several in one call, or a large one in several calls; until the last of these it is
-- there for nobody. (guard, execution, counting)
-- ARGV: whether this is the first call, whether it is the last; token; for how long to hold ready nodes in limbo, in
--   microseconds (0: they are free); for how many microseconds the first epoch may be installed; for how many seconds a hash
--   is kept. For each execution: id, generation, epoch, state, deadline (0 none), unsettled, updated at, number of values,
--   number of ready nodes; each field with its value; the ready nodes, each with name, attempt, kept, not before,
--   1 where somebody may have it in hand: only then it is held in limbo.
-- Reply: an answer for each.
local is_first, is_last, given = number() == 1, number() == 1, argument()
local limbo_for, first_for, keep = number(), number(), argument()
local limbo_until = string.format(WHOLE, now + limbo_for)

local function judged(mark, generation, epoch, updated)
  if token ~= given or token == EMPTY then
    return REFUSED
  elseif not is_first then
    return mark ~= generation .. COLON .. token .. COLON .. epoch .. COLON .. INSTALLING and REFUSED or nil
  end
  -- What an earlier incarnation, or nobody of weft, has left there is written over.
  local _, incarnation, known = match(mark or EMPTY, MARK_PATTERN)
  if incarnation == token and tonumber(epoch) <= tonumber(known) then
    return REFUSED
  elseif tonumber(epoch) == 1 and now >= updated + first_for then
    -- All of it may be over by now, and its mark be gone.
    return REFUSED
  end
end

local function put_ready(ex, name, attempt, kept, not_before, in_hand)
  -- Compared with the server's time now, not with that of the snapshot.
  if limbo_for == 0 or in_hand ~= MAY_BE_IN_HAND or tonumber(not_before) > now then
    free_in_time(ex, name, attempt, kept, not_before)
  else
    put(ex, name, LIMBO .. attempt .. COLON .. kept .. COLON)
    ex.in_flight = ex.in_flight + 1
    add(leases, limbo_until, name .. COLON .. ex.id)
  end
end

local reply, entered = {}, {}

-- Write an execution, or a part of it. Nothing is read of what was there before the first.
local function install(key, id, mark, from, values, to)
  local got = is_first and {mark} or fetch(key, {MARK, IN_FLIGHT, IN_HAND, FREE_LIST})
  local ex = execution(key, id, got, is_first and {[FREE_LIST .. 0] = false, [DELAYED] = false} or {})
  for at = from, from + values - 1, 2 do
    put(ex, ARGV[at], ARGV[at + 1])
  end
  put(ex, MARK, mark)
  for at = from + values, to - 1, 5 do
    put_ready(ex, ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
  end
  if is_first then
    call('UNLINK', key)
  end
  write(ex)
  if is_first then
    call('EXPIRE', key, keep)
  end
end

-- Judged first, and counted: that is a write which a server without memory refuses, before anything is taken away.
local parts = {}
for place = 1, execution_count do
  local key, id, generation, epoch = KEYS[hashes + place], argument(), argument(), argument()
  local state, deadline, unsettled, updated = argument(), argument(), number(), argument()
  local values, ready = number(), number()
  local from = cursor
  cursor = from + values + 5 * ready
  local got = redis.pcall('HMGET', key, MARK, ROW)
  local known = not got.err and got[1]
  local refused = judged(known, generation, epoch, tonumber(updated))
  reply[place] = refused or YES
  if not refused then
    local mark = generation .. COLON .. token .. COLON .. epoch .. COLON .. (is_last and state or INSTALLING)
    parts[#parts + 1] = {key, id, mark, from, values, cursor}
    local _, incarnation, _, letter = match(known or EMPTY, MARK_PATTERN)
    if incarnation == token and letter ~= CLOSED and letter ~= INSTALLING then -- until now it was there
      local _, _, before = match(got[2] or EMPTY, ROW_PATTERN)
      unsettled_by = unsettled_by - tonumber(before or 0)
    end
    if is_last then
      unsettled_by = unsettled_by + unsettled
      add(entered, updated, id)
      if deadline ~= NO_TIME then
        add(timers, deadline, COLON .. id)
      end
    end
  end
end
write_count()
for index = 1, #parts do
  install(unpack(parts[index]))
end
call_in_parts('ZADD', KEYS[ACTIVE_KEY], entered)
write_sets()
return reply
