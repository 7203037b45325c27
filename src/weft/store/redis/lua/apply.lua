-- Merge the journal's rows into executions, queue tasks of nodes that are free then, and list the free nodes of each. One
-- that has ended is let go. (guard, execution, queueing, counting)
-- ARGV: as in queueing; for how many seconds the tombstone of a closed execution stays, and for how many where no builder can be
--   under way. For each execution:
--     generation:epoch:state units tasks window gives     (generation and epoch empty: any; `gives` below)
--     its row, as it is kept (empty: there is none to merge)
--     the units, each with three: a name; an outcome; its children. Or, with no outcome: more children of a settled row. Or,
--       with the letter of an unsettled row: `attempt:kept:issued:not before`; with that of a parked one: `attempt:kept:rest`,
--       the rest as in its field. Where the children begin with a plus sign, the output has a field of its own and is a fourth.
--     the tasks
--   Of one that has ended the units are `name:attempt:`, whose leases are over with it, and `name:`, whose timers are.
--   A child is `name bit full more/`: the parent's bit, all bits, and where it is no plain child: 1 where its rule wakes it
--   for this row; the number of the bits' piece and how many pieces there are; other nodes that it names.
-- Reply, for each execution: an answer; WAS_GONE where there was nothing to let go. Where it is YES and there is more to
--   say, a list: YES; the answer to each task as a digit; the row that is kept (empty: as given); the plan, the input and
--   what does not change of the row where GIVES_ALL; the free nodes where GIVES_FREE: for each its name, its field, and what it sees (empty: all).
local bor = bit.bor
local keep_tombstone, keep_plain_tombstone = number(), number()
local reply = {}

-- -- letting go

local closed, closed_ids, deadlines = {}, {}, {}

-- Let an execution go, unless it is of a later epoch here, and leave a tombstone; return an answer.
local function let_go(key, generation, epoch)
  if incarnation_id == EMPTY then
    return UNKNOWN
  end
  local got = redis.pcall('HMGET', key, FENCE, ROW)
  -- Whatever else was there goes, too.
  local row = not got.err and got[2] or EMPTY
  local known, incarnation, known_epoch, known_state = match(not got.err and got[1] or EMPTY, FENCE_PATTERN)
  if incarnation ~= incarnation_id then
    known_state = nil
  end
  local is_live = known_state and known_state ~= CLOSED and known_state ~= INSTALLING
  if known_state and known_state ~= CLOSED and tonumber(known_epoch) > tonumber(epoch) then
    return REFUSED
  end
  closed_ids[#closed_ids + 1] = id_of(key)
  if known_state == CLOSED then
    if tonumber(generation) <= tonumber(known) and tonumber(epoch) <= tonumber(known_epoch) then
      return WAS_GONE
    end
    generation, epoch = math.max(generation, known), math.max(epoch, known_epoch)
  end
  -- The tombstone refuses builders that come late. That of the first epoch is refused by the time anyway: if
  -- it is what was here, no builder is left, and the tombstone only tells workers that still run an attempt
  -- of it.
  local keep = is_live and tonumber(epoch) == 1 and keep_plain_tombstone or keep_tombstone
  closed[#closed + 1] = {key, generation .. COLON .. incarnation_id .. COLON .. epoch .. COLON .. CLOSED, keep}
  local _, deadline, unsettled = match(row, ROW_PATTERN)
  if deadline and deadline ~= NO_TIME then
    deadlines[#deadlines + 1] = COLON .. id_of(key)
  end
  if is_live then
    unsettled_by = unsettled_by - tonumber(unsettled or 0)
  end
  return (is_live or known_state == INSTALLING) and YES or WAS_GONE
end

-- No list keeps an execution that has ended, also of one whose hash was lost alone. What else its nodes have left in leases
-- and timers is taken away when a worker asks for it, and by the sweep when it has run out.
local function write_closed()
  if not closed_ids[1] then
    return
  end
  for index = 1, #closed do
    local key = closed[index][1]
    call('UNLINK', key)
    call('HSET', key, FENCE, closed[index][2])
    call('EXPIRE', key, closed[index][3])
  end
  call('ZREM', KEYS[ACTIVE_KEY], unpack(closed_ids))
  call('ZREM', KEYS[FREE_KEY], unpack(closed_ids))
  if deadlines[1] then
    call('ZREM', KEYS[TIMERS_KEY], unpack(deadlines))
  end
end

-- -- children

local children = {}

-- Take the children of a node apart: name, bit, all bits and the rest of each, one behind the other.
local function children_of(text)
  local found = children[text]
  if not found then
    found = {}
    for name, bit_given, full, more in gmatch(text, CHILD_PATTERN) do
      local last = #found
      found[last + 1], found[last + 2], found[last + 3], found[last + 4] = name, tonumber(bit_given), tonumber(full), more
    end
    children[text] = found
  end
  return found
end

-- Fix what a node sees, where it is not all that it asks for: return what is kept of it then.
local function with_view(name, kept, is_complete, bits, others)
  local settled, is_all = {}, is_complete
  for other in gmatch(others, NAMES_PATTERN) do
    if sub(read(other) or EMPTY, 1, 1) == SETTLED then
      settled[#settled + 1] = other
    else
      is_all = false
    end
  end
  if is_all then
    return kept
  end
  put(VIEW .. name, bits .. SEMICOLON .. table.concat(settled, COMMA))
  return with_flag(kept, VIEWED)
end

-- Count a parent that has settled in a join of several pieces, or that wakes its child early. Return whether all have
-- settled, the number to keep, all bits.
local function arrive_wide(child, number_now, bit_given, full, piece, pieces)
  if piece == EMPTY then
    number_now = bor(number_now, bit_given)
    return number_now == full, number_now, number_now
  end
  local field = PIECE .. piece .. child
  local before = count_of(read(field))
  local after = bor(before, bit_given)
  if after ~= before then
    put(field, text_of(after))
    if after == full then
      number_now = number_now + 1
    end
  end
  return number_now == tonumber(pieces), number_now
end

local function bits_of(child, pieces)
  local bits = {}
  for piece = 0, pieces - 1 do
    bits[piece + 1] = read(PIECE .. piece .. child) or NO_TIME
  end
  return table.concat(bits, COMMA)
end

-- Let a child wait for one parent less; free it where it waits for none.
local function arrive(child, bit_given, full, more)
  local have = value[child]
  local attempt, kept, not_before, number_now = FIRST_ATTEMPT, EMPTY, 0, 0
  if have then
    number_now = tonumber(have)
    if not number_now then
      number_now, attempt, kept, not_before = match(have, WAITING_PATTERN)
      if not number_now then
        return parsed(have) == WAITING and poison()
      end
      number_now = tonumber(number_now)
    end
  end
  local is_plain = attempt == FIRST_ATTEMPT and kept == EMPTY
  if more == EMPTY then
    number_now = bor(number_now, bit_given)
    if number_now == full then
      if is_plain then
        free(child, FREE_FIRST)
      else
        free_in_time(child, attempt, kept, not_before)
      end
      return
    end
  else
    local early, piece, pieces, others = match(more, MORE_PATTERN)
    local is_complete, bits
    is_complete, number_now, bits = arrive_wide(child, number_now, bit_given, full, piece, pieces)
    if is_complete or early == EARLY then
      bits = bits or not is_complete and bits_of(child, tonumber(pieces)) or EMPTY
      free_in_time(child, attempt, with_view(child, kept, is_complete, bits, others), not_before)
      return
    end
  end
  number_now = text_of(number_now)
  put(child, is_plain and number_now or number_now .. SPACE .. attempt .. COLON .. kept .. COLON .. not_before)
end

-- -- rows

-- Merge a settled row. A row that was here before is merged into the children again: the call that brought it
-- may not have reached all of them.
local function settle(name, outcome)
  local record = value[name]
  if record then
    if sub(record, 1, 1) == SETTLED then
      return
    end
    leave(name, record)
  end
  put(name, outcome)
end

local function with_issued(kept, issued)
  local failures, losses, before, flags = match(kept == EMPTY and NOTHING_KEPT or kept, KEPT_PATTERN)
  if tonumber(issued) <= tonumber(before or poison()) then
    return kept
  end
  return failures .. COMMA .. losses .. COMMA .. issued .. flags
end

-- Merge an unsettled row: another attempt of a node, or the fact that an attempt was issued.
local function renew(name, attempt, kept, issued, not_before)
  local record = value[name] or NO_TIME
  local bits, current, now_kept = match(record, WAITING_PATTERN)
  local phase, rest, not_yet = WAITING, nil, 0
  if bits then
    not_yet = match(record, LAST_NUMBER)
  else
    bits, current, now_kept = match(record, FIRST_NUMBER), FIRST_ATTEMPT, EMPTY
    if not bits then
      phase, current, now_kept, rest = parsed(record)
    end
  end
  if phase == SETTLED or tonumber(attempt) < tonumber(current) then
    return
  elseif tonumber(attempt) == tonumber(current) then
    kept, not_before = with_issued(now_kept, issued), not_yet
    if phase ~= WAITING then
      put(name, phase .. attempt .. COLON .. kept .. COLON .. rest)
      return
    end
  elseif phase ~= WAITING then
    -- Another attempt of a node that was ready before: it waits for its time, or is free again.
    leave(name, record)
    free_in_time(name, attempt, find(now_kept, VIEWED, 1, true) and with_flag(kept, VIEWED) or kept, not_before)
    return
  end
  local is_plain = attempt == FIRST_ATTEMPT and kept == EMPTY
  put(name, is_plain and bits or bits .. SPACE .. attempt .. COLON .. kept .. COLON .. not_before)
end

-- Merge the row of a parked node. One that is parked already fires again soon: the journal's clock may be behind.
local function renew_parked(name, attempt, kept, due_at, times)
  local record = value[name] or NO_TIME
  local phase, current = parsed(record)
  if phase == WAITING then
    current = select(2, match(record, WAITING_PATTERN)) or FIRST_ATTEMPT
  end
  if phase == SETTLED or tonumber(attempt) < tonumber(current) then
    return
  elseif phase == PARKED and attempt == current then
    if sub(times, -1) == WAITS then
      return
    end
    add(timers, string.format(WHOLE, math.max(tonumber(due_at), now + PARKED_AGAIN)), member(name))
    return
  end
  leave(name, record)
  park(name, attempt, kept, due_at .. COLON .. times)
end

-- Take over the journal's row, if it is news; return it where it is not, and by how much fewer nodes are unsettled.
local function merge(fence, known, given_state, given)
  local known_seq, known_deadline, known_unsettled = numbers_of(known)
  local seq, deadline, unsettled, rest = numbers_of(given)
  if count_of(seq) < count_of(known_seq) then
    return known, 0
  elseif deadline == NO_TIME and known_deadline ~= NO_TIME then
    given = seq .. SPACE .. known_deadline .. SPACE .. unsettled .. SPACE .. sub(given, rest)
  elseif deadline ~= known_deadline then
    add(timers, deadline, member(EMPTY))
  end
  put(ROW, given)
  if given_state ~= state then
    state = given_state
    put(FENCE, sub(fence, 1, -2) .. given_state)
  end
  return EMPTY, count_of(unsettled) - count_of(known_unsettled)
end

-- Note the fields that the units of an execution are about; return where they end.
local function note_units(at, units)
  for _ = 1, units do
    note(ARGV[at])
    local outcome, about = ARGV[at + 1], ARGV[at + 2]
    at = at + 3
    if outcome ~= UNIT_UNSETTLED and outcome ~= UNIT_PARKED then
      if sub(about, 1, 1) == WITH_OUTPUT then
        at = at + 1
      end
      local own = children_of(about)
      for child = 1, #own, 4 do
        note(own[child])
      end
    end
  end
  return at
end

local function merge_units(at, units)
  for _ = 1, units do
    local name, outcome, about = ARGV[at], ARGV[at + 1], ARGV[at + 2]
    at = at + 3
    if outcome == UNIT_UNSETTLED then
      renew(name, match(about, UNSETTLED_PATTERN))
    elseif outcome == UNIT_PARKED then
      renew_parked(name, match(about, PARKED_UNIT_PATTERN))
    else
      if outcome ~= EMPTY then
        settle(name, outcome)
      end
      if sub(about, 1, 1) == WITH_OUTPUT then
        put(OUTPUT .. name, ARGV[at])
        at = at + 1
      end
      if sub(value[name] or EMPTY, 1, 1) == SETTLED then
        local own = children_of(about)
        for child = 1, #own, 4 do
          arrive(own[child], own[child + 1], own[child + 2], own[child + 3])
        end
      end
    end
  end
end

-- -- the reply

-- Append the free nodes of the execution, as many as have a concurrency slot.
local function give(said, window)
  local head, tail = bounds()
  local room = math.min(window - counts % IN_HAND, MOST_VALUES)
  if not head or state ~= OPEN or room <= 0 then
    return
  end
  local names = {}
  for piece = head, tail do
    local in_piece = room > #names and names_in(read(FREE_LIST .. piece)) or {}
    for index = 1, math.min(#in_piece, room - #names) do
      names[#names + 1] = in_piece[index]
    end
  end
  local got = names[1] and fetch(hash, names, #names)
  for index = 1, #names do
    local name, record, last = names[index], got[index], #said
    local _, _, kept = parsed(record or poison())
    said[last + 1], said[last + 2] = name, record
    said[last + 3] = find(kept or poison(), VIEWED, 1, true) and read(VIEW .. name) or EMPTY
  end
end

local heads = {}

-- Take the first argument of an execution apart.
local function head_of(text)
  local head = heads[text]
  if not head then
    local generation, epoch, given_state, units, tasks, window, gives = match(text, HEAD_PATTERN)
    head = {
      generation = generation ~= EMPTY and generation, epoch = epoch ~= EMPTY and epoch, state = given_state,
      units = tonumber(units), tasks = tonumber(tasks), window = tonumber(window), gives = gives,
    }
    heads[text] = head
  end
  return head
end

local function step(key, head, row, units_from, tasks_from)
  local got, refused = open(key, head.generation, head.epoch)
  if not got then
    return refused
  end
  local window, kept_row, fewer = head.window, got[4], 0
  if window == 0 then
    window = tonumber(match(read(PLAN) or poison(), PLAN_PATTERN)) or poison()
  end
  if row ~= EMPTY then
    kept_row, fewer = merge(got[1], kept_row, head.state, row)
  end
  merge_units(units_from, head.units)
  local answers, is_plain = {}, true
  for task = 1, head.tasks do
    local at = tasks_from + 2 * task - 2
    answers[task] = queue_task(about_of(ARGV[at]), ARGV[at + 1], window)
    is_plain = is_plain and answers[task] == YES
  end
  write()
  unsettled_by = unsettled_by + fewer
  if head.gives == GIVES_NOTHING or head.gives == GIVES_FREE and is_plain and not free_list then
    return is_plain and YES or {YES, table.concat(answers)}
  end
  local said = {YES, table.concat(answers), kept_row or poison()}
  if head.gives == GIVES_ALL then
    local rest = fetch(key, {PLAN, INPUT, FIXED}, 3)
    said[4], said[5], said[6] = rest[1], rest[2], rest[3]
  end
  give(said, window)
  return said
end

for index = 1, execution_count do
  local head, row = head_of(ARGV[cursor]), ARGV[cursor + 1]
  local units_from = cursor + 2
  if head.state == TERMINAL then
    local key = KEYS[hashes + index]
    cursor = units_from + head.units
    reply[index] = let_go(key, head.generation, head.epoch)
    for unit = units_from, reply[index] ~= REFUSED and cursor - 1 or 0 do
      local gone = find(ARGV[unit], TIMER_UNIT_PATTERN) and timers_gone or leases_gone
      gone[#gone + 1] = ARGV[unit] .. id_of(key)
    end
  else
    reset()
    local tasks_from = note_units(units_from, head.units)
    cursor = tasks_from + 2 * head.tasks
    if head.units == 0 then
      for task = tasks_from, cursor - 1, 2 do
        note(about_of(ARGV[task]).name)
      end
    end
    reply[index] = guarded(index, step, head, row, units_from, tasks_from)
  end
end
write_count()
write_closed()
write_sets()
return reply
