-- An execution as the scripts change it that free, queue and settle nodes: read once, changed here, written once. (guard)
--
-- ex.value has the fields of nodes and lists that were read, and the new ones; false where there is none.
local byte, find, gmatch = string.byte, string.find, string.gmatch
local SETTLED_BYTE, FREE_FIRST = byte(SETTLED), FREE .. FIRST_ATTEMPT .. COLON .. COLON
-- What is to be written to the sorted sets, each with its score, and to be removed from them.
local leases, timers, with_free = {}, {}, {}
local leases_gone, timers_gone = {}, {}
-- What is to be written of the execution at hand: fields and values; names whose field is written last, as it is then.
local set, filled = {}, 0
local late, late_count = {}, 0

-- Make an execution of the values of MARK, IN_FLIGHT, IN_HAND, FREE_LIST, and of nodes' fields.
local function execution(key, id, got, value)
  filled, late_count = 0, 0
  local in_flight, in_hand = count_of(got[2]), count_of(got[3])
  return {
    key = key, id = id, mark = got[1], state = false, window = 0, value = value, lists = false,
    in_flight = in_flight, in_flight_before = in_flight, in_hand = in_hand, in_hand_before = in_hand,
    delayed_by = 0, unsettled_by = 0, free_list = got[4],
  }
end

-- Set a field, to be written.
local function put(ex, field, value)
  ex.value[field] = value
  set[filled + 1], set[filled + 2] = field, value
  filled = filled + 2
end

-- Set a field that may change again in this call.
local function put_late(ex, field, value)
  ex.value[field] = value
  late_count = late_count + 1
  late[late_count] = field
end

local function read(ex, field)
  local value = ex.value[field]
  if value == nil then
    value = fetch(ex.key, {field})[1]
    ex.value[field] = value
  end
  return value
end

local function add(scores, score, member)
  local last = #scores
  scores[last + 1], scores[last + 2] = score, member
end

-- -- the free list

-- Return the first and the last piece of the free list; nothing where it is empty.
local function bounds(ex)
  if ex.free_list then
    local head, tail = match(ex.free_list, BOUNDS_PATTERN)
    return tonumber(head) or poison(), tonumber(tail)
  end
end

-- Set a piece of the free list; false: there is none.
local function put_piece(ex, field, names)
  ex.value[field] = names
  ex.lists = ex.lists or {}
  ex.lists[field] = true
end

local function names_in(piece)
  local names = {}
  for name in gmatch(piece or EMPTY, NAMES_PATTERN) do
    names[#names + 1] = name
  end
  return names
end

-- Add a node to the free list, and return the piece that it is in.
local function list_add(ex, name)
  local head, tail = bounds(ex)
  if not head then
    head, tail = 0, 0
    -- Not taken back when no node is left: the sweep does, where nothing else was freed meanwhile.
    add(with_free, now_text, ex.id)
    ex.free_list = head .. COLON .. tail
  end
  local names = read(ex, FREE_LIST .. tail) or COMMA
  if #names >= PIECE_BYTES then
    tail, names = tail + 1, COMMA
    ex.free_list = head .. COLON .. tail
  end
  put_piece(ex, FREE_LIST .. tail, names .. name .. COMMA)
  return tail
end

local function list_remove(ex, name, piece)
  local names = read(ex, FREE_LIST .. piece)
  local from, to = find(names or poison(), COMMA .. name .. COMMA, 1, true)
  names = sub(names, 1, from or poison()) .. sub(names, to + 1)
  put_piece(ex, FREE_LIST .. piece, names ~= COMMA and names)
  if names ~= COMMA then
    return
  end
  local head, tail = bounds(ex)
  while head < tail and not read(ex, FREE_LIST .. head) do
    head = head + 1
  end
  ex.free_list = read(ex, FREE_LIST .. head) and head .. COLON .. tail
end

-- -- phases

-- Let a node leave its phase: its place, lease, timer, or place in the free list.
local function leave(ex, name, record)
  local phase = sub(record, 1, 1)
  if phase == REPORTED or phase == RUNNING then
    ex.in_flight, ex.in_hand = ex.in_flight - 1, ex.in_hand - 1
    leases_gone[#leases_gone + 1] = name .. COLON .. ex.id
  elseif phase == FREE then
    local _, _, _, piece = parsed(record)
    if piece ~= EMPTY then -- else it was freed in this call, and is in no list yet
      list_remove(ex, name, piece)
    end
  elseif phase == QUEUED or phase == LIMBO then
    ex.in_flight = ex.in_flight - 1
    leases_gone[#leases_gone + 1] = name .. COLON .. ex.id
  elseif phase == LINED then
    ex.delayed_by = ex.delayed_by - 1
    leases_gone[#leases_gone + 1] = name .. COLON .. ex.id
  elseif phase == TIMER then
    ex.delayed_by = ex.delayed_by - 1
    timers_gone[#timers_gone + 1] = name .. COLON .. ex.id
  elseif not match(record, FIRST_NUMBER) then
    poison()
  end
end

-- Set a ready node free, or a timer for it where it is to wait.
local function free_in_time(ex, name, attempt, kept, not_before)
  if tonumber(not_before) <= now then
    put_late(ex, name, FREE .. attempt .. COLON .. kept .. COLON)
    return
  end
  put(ex, name, TIMER .. attempt .. COLON .. kept .. COLON .. not_before)
  ex.delayed_by = ex.delayed_by + 1
  add(timers, not_before, name .. COLON .. ex.id)
end

local function with_flag(kept, flag)
  return (kept == EMPTY and NOTHING_KEPT or kept) .. flag
end

local function without_flag(kept, flag)
  local at = find(kept, flag, 1, true)
  return at and sub(kept, 1, at - 1) .. sub(kept, at + 1) or kept
end

-- -- writing

-- Call with any number of values, so many at a time that no call has too many.
local function call_in_parts(command, key, values, count)
  count = count or #values
  for from = 1, count, MOST_VALUES do
    call(command, key, unpack(values, from, math.min(from + MOST_VALUES - 1, count)))
  end
end

-- Write what was judged of an execution: nothing of it is poison any more.
local function write(ex)
  local value = ex.value
  for index = 1, late_count do
    local name = late[index]
    local record = value[name]
    if byte(record) == byte(FREE) and byte(record, -1) == byte(COLON) then
      record = record .. list_add(ex, name)
    end
    put(ex, name, record)
  end
  if ex.in_flight ~= ex.in_flight_before then
    put(ex, IN_FLIGHT, ex.in_flight)
  end
  if ex.in_hand ~= ex.in_hand_before then
    put(ex, IN_HAND, ex.in_hand)
  end
  if ex.delayed_by ~= 0 then
    put(ex, DELAYED, count_of(read(ex, DELAYED)) + ex.delayed_by)
  end
  local gone
  if ex.lists then
    ex.lists[FREE_LIST], value[FREE_LIST] = true, ex.free_list
    for field in pairs(ex.lists) do
      if value[field] then
        put(ex, field, value[field])
      else
        gone = gone or {}
        gone[#gone + 1] = field
      end
    end
  end
  if filled <= MOST_VALUES and filled > 0 then
    call('HSET', ex.key, unpack(set, 1, filled))
  else
    call_in_parts('HSET', ex.key, set, filled)
  end
  if gone then
    call_in_parts('HDEL', ex.key, gone)
  end
end

-- Removed first: what is set again has left before.
local function write_sets()
  call_in_parts('ZREM', KEYS[LEASES_KEY], leases_gone)
  call_in_parts('ZREM', KEYS[TIMERS_KEY], timers_gone)
  call_in_parts('ZADD', KEYS[LEASES_KEY], leases)
  call_in_parts('ZADD', KEYS[TIMERS_KEY], timers)
  call_in_parts('ZADD', KEYS[FREE_KEY], with_free)
end
