-- Merge the journal's rows into executions, and queue tasks of nodes that are free then; answer with all free nodes of
-- each. One that has ended is let go. (guard, execution, queueing, giving, counting, closing)
-- ARGV: as in queueing; as in closing; for each execution: id, generation, epoch, state, seq, deadline (0 none), unsettled,
--   row (empty: not to be merged), 1 to give the free nodes, number of units, number of tasks; the units; the tasks, each
--   with name, attempt, lane, task. A unit is one of
--     s; name, outcome, children            a settled row
--     o; name, outcome, output, children    one whose output has a field of its own
--     c; name, children                     more children of a settled row
--     u; name, attempt, kept, issued, not before    an unsettled row
--   and of an execution that has ended: a name, whose lease is over with it;
--   where `children` are their number, and for each: name, the parent's bit, all bits, and where it is no plain child:
--   1 where its rule wakes it for this row; the number of the bits' piece and how many pieces there are; other nodes that
--   it names.
-- Reply, for each execution: an answer, WAS_GONE where there was nothing to let go; where it is YES and free nodes are to
--   be given: a letter for each task, `y` where it was queued; row (empty: as given); the free nodes.
local bor = bit.bor

-- Fix what a node sees, where it is not all that it asks for: return what is kept of it then.
local function with_view(ex, name, kept, is_complete, bits, others)
  local settled, is_all = {}, is_complete
  for other in gmatch(others, NAMES_PATTERN) do
    local outcome = read(ex, other)
    if outcome and byte(outcome) == SETTLED_BYTE then
      settled[#settled + 1] = other
    else
      is_all = false
    end
  end
  if is_all then
    return kept
  end
  put(ex, VIEW .. name, bits .. SEMICOLON .. table.concat(settled, COMMA))
  return with_flag(kept, VIEWED)
end

-- Count a parent that has settled in a join of several pieces, or that wakes its child early. Return whether all have
-- settled, the number to keep, all bits.
local function arrive_wide(ex, child, number_now, bit_given, full, piece, pieces)
  if piece == EMPTY then
    number_now = bor(number_now, bit_given)
    return number_now == full, number_now, number_now
  end
  local field = PIECE .. piece .. child
  local before = count_of(read(ex, field))
  local after = bor(before, bit_given)
  if after ~= before then
    put(ex, field, after)
    if after == full then
      number_now = number_now + 1
    end
  end
  return number_now == tonumber(pieces), number_now
end

local function bits_of(ex, child, pieces)
  local bits = {}
  for piece = 0, pieces - 1 do
    bits[piece + 1] = read(ex, PIECE .. piece .. child) or NO_TIME
  end
  return table.concat(bits, COMMA)
end

-- Let a child wait for one parent less; free it where it waits for none.
local function arrive(ex, child, bit_given, full, more)
  local have = ex.value[child]
  local attempt, kept, not_before = FIRST_ATTEMPT, EMPTY, 0
  local number_now = 0
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
  if more == EMPTY then
    number_now = bor(number_now, bit_given)
    if number_now == full then
      if attempt == FIRST_ATTEMPT and kept == EMPTY then
        put_late(ex, child, FREE_FIRST)
      else
        free_in_time(ex, child, attempt, kept, not_before)
      end
      return
    end
  else
    local early, piece, pieces, others = match(more, MORE_PATTERN)
    local is_complete, bits
    is_complete, number_now, bits = arrive_wide(ex, child, number_now, bit_given, full, piece, pieces)
    if is_complete or early == EARLY then
      bits = bits or not is_complete and bits_of(ex, child, tonumber(pieces)) or EMPTY
      free_in_time(ex, child, attempt, with_view(ex, child, kept, is_complete, bits, others), not_before)
      return
    end
  end
  if attempt ~= FIRST_ATTEMPT or kept ~= EMPTY then
    number_now = number_now .. SPACE .. attempt .. COLON .. kept .. COLON .. not_before
  end
  put(ex, child, number_now)
end

-- Merge a settled row. Its children are told also of one that was here before: whoever brought it may not have come to all.
local function settle(ex, name, outcome)
  local record = ex.value[name]
  if record then
    if byte(record) == SETTLED_BYTE then
      return
    end
    leave(ex, name, record)
  end
  put(ex, name, outcome)
end

local function with_issued(kept, issued)
  local failures, losses, before, flags = match(kept == EMPTY and NOTHING_KEPT or kept, KEPT_PATTERN)
  if tonumber(issued) <= tonumber(before or poison()) then
    return kept
  end
  return failures .. COMMA .. losses .. COMMA .. issued .. flags
end

-- Merge an unsettled row: another attempt of a node, or the mark that an attempt was issued.
local function renew(ex, name, attempt, kept, issued, not_before)
  local record = ex.value[name] or NO_TIME
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
      put_late(ex, name, phase .. attempt .. COLON .. kept .. COLON .. rest)
      return
    end
  elseif phase ~= WAITING then
    -- Another attempt of a node that was ready before: it waits for its time, or is free again.
    leave(ex, name, record)
    free_in_time(ex, name, attempt, find(now_kept, VIEWED, 1, true) and with_flag(kept, VIEWED) or kept, not_before)
    return
  end
  local is_plain = attempt == FIRST_ATTEMPT and kept == EMPTY
  put(ex, name, is_plain and bits or bits .. SPACE .. attempt .. COLON .. kept .. COLON .. not_before)
end

local fields, field_count = {}, 0

-- Note the fields that the units of an execution are about, behind those of every execution; return where the units end.
local function note_fields(at, units)
  for _ = 1, units do
    local kind = ARGV[at]
    field_count = field_count + 1
    fields[field_count] = ARGV[at + 1]
    if kind == UNIT_UNSETTLED then
      at = at + 6
    else
      at = at + (kind == UNIT_SETTLED and 3 or kind == UNIT_LARGE and 4 or 2)
      local last = at + 4 * tonumber(ARGV[at])
      for child = at + 1, last, 4 do
        field_count = field_count + 1
        fields[field_count] = ARGV[child]
      end
      at = last + 1
    end
  end
  return at
end

-- Take over the journal's row, if it is news.
local function merge(ex, known, state, seq, deadline, unsettled, row)
  local known_seq, known_deadline, known_unsettled, row_from = numbers_of(known)
  if row == EMPTY or tonumber(seq) < tonumber(known_seq) then
    return sub(known, row_from)
  end
  local shown = deadline == NO_TIME and known_deadline or deadline
  put(ex, ROW, seq .. SPACE .. shown .. SPACE .. unsettled .. SPACE .. row)
  if state ~= ex.state then
    ex.state = state
    put(ex, MARK, sub(ex.mark, 1, -2) .. state)
  end
  if deadline ~= NO_TIME and deadline ~= known_deadline then
    add(timers, deadline, COLON .. ex.id)
  end
  ex.unsettled_by = unsettled - known_unsettled
  return EMPTY
end

local function merge_units(ex, at, units)
  for _ = 1, units do
    local kind, name = ARGV[at], ARGV[at + 1]
    if kind == UNIT_UNSETTLED then
      renew(ex, name, ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5])
      at = at + 6
    else
      if kind == UNIT_SETTLED then
        settle(ex, name, ARGV[at + 2])
        at = at + 3
      elseif kind == UNIT_LARGE then
        settle(ex, name, ARGV[at + 2])
        put(ex, OUTPUT .. name, ARGV[at + 3])
        at = at + 4
      else
        at = at + 2
      end
      local last = at + 4 * tonumber(ARGV[at])
      local record = ex.value[name]
      if record and byte(record) == SETTLED_BYTE then
        for child = at + 1, last, 4 do
          arrive(ex, ARGV[child], tonumber(ARGV[child + 1]), tonumber(ARGV[child + 2]), ARGV[child + 3])
        end
      end
      at = last + 1
    end
  end
end

local function step(key, id, at, units, units_from, units_to, tasks_given)
  fields[1], fields[2], fields[3], fields[4], fields[5], fields[6] = MARK, IN_FLIGHT, IN_HAND, FREE_LIST, ROW, PLAN
  local got = fetch(key, fields, field_count)
  local refused, state = refusal(got[1], ARGV[at], ARGV[at + 1])
  if refused then
    return refused
  end
  local value = {a = nil, b = nil, c = nil, d = nil, e = nil, f = nil, g = nil, h = nil} -- room for eight fields
  for field = 7, field_count do
    value[fields[field]] = got[field]
  end
  local ex = execution(key, id, got, value)
  ex.state, ex.window = state, window_of(got[6])
  local row = merge(ex, got[5], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5], ARGV[at + 6])
  merge_units(ex, units_from, units)
  local told = EMPTY
  for task = units_to, units_to + 4 * tasks_given - 1, 4 do
    local answer = queue_task(ex, ARGV[task], ARGV[task + 1], ARGV[task + 2], ARGV[task + 3])
    told = told .. (answer == YES and IS_QUEUED or NOT_QUEUED)
  end
  write(ex)
  unsettled_by = unsettled_by + ex.unsettled_by
  local last = #reply
  reply[last + 1] = YES
  if ARGV[at + 7] == TO_GIVE then
    reply[last + 2], reply[last + 3] = told, row
    give(ex)
  end
end

for place = 1, execution_count do
  local id, at = ARGV[cursor], cursor + 1
  local units, tasks_given = tonumber(ARGV[at + 8]), tonumber(ARGV[at + 9])
  local units_from, from = at + 10, #reply
  field_count = 6
  local is_over = ARGV[at + 2] == TERMINAL
  local units_to = is_over and units_from + units or note_fields(units_from, units)
  for task = units_to, units == 0 and units_to + 4 * tasks_given - 1 or 0, 4 do
    field_count = field_count + 1
    fields[field_count] = ARGV[task]
  end
  cursor = units_to + 4 * tasks_given
  local answer
  if is_over then
    answer = let_go(KEYS[hashes + place], id, ARGV[at], ARGV[at + 1])
    for unit = units_from, answer ~= REFUSED and units_to - 1 or 0 do
      leases_gone[#leases_gone + 1] = ARGV[unit] .. COLON .. id
    end
  else
    answer = guarded(place, step, id, at, units, units_from, units_to, tasks_given)
  end
  if answer then
    take_back(from)
    reply[from + 1] = answer
  end
end
write_count()
write_closed()
write_sets()
return reply
