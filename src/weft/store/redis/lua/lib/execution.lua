-- The execution at hand of the scripts that free, queue and settle nodes: read once, changed here, written once. (guard)
--
-- `value` has the fields that were read, and the new ones; false where there is none, nil where it was not read.
local byte, find, gmatch = string.byte, string.find, string.gmatch
local FREE_FIRST = FREE .. FIRST_ATTEMPT .. COLON .. COLON
-- What is to be written to the sorted sets, each with its score, and to be removed from them.
local leases, timers, with_free = {}, {}, {}
local leases_gone, timers_gone = {}, {}

local hash, id, state
local value, fields, field_count = {}, {FENCE, COUNTS, FREE_LIST, ROW}, FIXED_FIELDS
-- Fields that have changed; names of nodes that were set free, and may be something else by the end.
local changed, change_count, freed, freed_count = {}, 0, {}, 0
-- The nodes in flight, in a worker's hand, and waiting for a timer or a token, as one number; bounds of the free list.
local counts, counts_before, free_list, lists

-- Note a field that is to be read, once.
local function note(field)
  if value[field] == nil then
    field_count = field_count + 1
    fields[field_count], value[field] = field, false
  end
end

-- Forget the execution that was at hand.
local function reset()
  for index = FIXED_FIELDS + 1, field_count do
    value[fields[index]] = nil
  end
  field_count, change_count, freed_count, lists, id = FIXED_FIELDS, 0, 0, nil, nil
end

-- Read an execution, with the fields that were noted. Return what was read, or nil and an answer.
local function open(key, generation, epoch)
  local got, refused = fetch(key, fields, field_count), nil
  refused, state = refusal(got[1], generation, epoch)
  if refused then
    return nil, refused
  end
  for index = FIXED_FIELDS + 1, field_count do
    value[fields[index]] = got[index]
  end
  hash, counts, free_list = key, count_of(got[2]), got[3]
  counts_before = counts
  return got
end

-- Set a field, to be written as it is in the end.
local function put(field, text)
  if value[field] == nil then
    field_count = field_count + 1
    fields[field_count] = field
  end
  value[field] = text
  change_count = change_count + 1
  changed[change_count] = field
end

local function read(field)
  local text = value[field]
  if text == nil then
    text = fetch(hash, {field}, 1)[1]
    field_count = field_count + 1
    fields[field_count], value[field] = field, text
  end
  return text
end

local function add(scores, score, member)
  local last = #scores
  scores[last + 1], scores[last + 2] = score, member
end

-- Return the member of a sorted set that stands for a node of the execution at hand.
local function member(name)
  id = id or id_of(hash)
  return name .. COLON .. id
end

-- Return the member of the sorted set of leases that stands for an attempt of a node of the execution at hand.
local function lease_of(name, attempt)
  id = id or id_of(hash)
  return name .. COLON .. attempt .. COLON .. id
end

-- -- the free list

-- Return the first and the last piece of the free list; nothing where it is empty.
local function bounds()
  if free_list then
    local head, tail = match(free_list, BOUNDS_PATTERN)
    return tonumber(head) or poison(), tonumber(tail)
  end
end

-- Set a piece of the free list; false: there is none.
local function put_piece(field, names)
  if value[field] == nil then
    field_count = field_count + 1
    fields[field_count] = field
  end
  value[field] = names
  lists = lists or {}
  lists[field] = true
end

local function names_in(piece)
  local names = {}
  for name in gmatch(piece or EMPTY, NAMES_PATTERN) do
    names[#names + 1] = name
  end
  return names
end

-- Add a node to the free list, and return the piece that it is in.
local function list_add(name)
  local head, tail = bounds()
  if not head then
    head, tail = 0, 0
    -- Not taken back when no node is left: the sweep does, where nothing else was freed meanwhile.
    add(with_free, now_text, id_of(hash))
    free_list = head .. COLON .. tail
  end
  local names = read(FREE_LIST .. tail) or COMMA
  if #names >= PIECE_BYTES then
    tail, names = tail + 1, COMMA
    free_list = head .. COLON .. tail
  end
  put_piece(FREE_LIST .. tail, names .. name .. COMMA)
  return tail
end

local function list_remove(name, piece)
  local names = read(FREE_LIST .. piece)
  local from, to = find(names or poison(), COMMA .. name .. COMMA, 1, true)
  names = sub(names, 1, from or poison()) .. sub(names, to + 1)
  put_piece(FREE_LIST .. piece, names ~= COMMA and names)
  if names ~= COMMA then
    return
  end
  local head, tail = bounds()
  while head < tail and not read(FREE_LIST .. head) do
    head = head + 1
  end
  free_list = read(FREE_LIST .. head) and head .. COLON .. tail
end

-- -- phases

-- Let a node leave its phase: drop its concurrency slot, lease, timer or entry of the free list.
local function leave(name, record)
  local phase = sub(record, 1, 1)
  if phase == RUNNING then
    counts = counts - 1 - IN_HAND
    leases_gone[#leases_gone + 1] = lease_of(name, match(record, ATTEMPT_PATTERN))
  elseif phase == FREE then
    local _, _, _, piece = parsed(record)
    if piece ~= EMPTY then -- else it was freed in this call, and is in no list yet
      list_remove(name, piece)
    end
  elseif phase == QUEUED or phase == ORPHANED then
    counts = counts - 1
    leases_gone[#leases_gone + 1] = lease_of(name, match(record, ATTEMPT_PATTERN))
  elseif phase == THROTTLED then
    counts = counts - DELAYED
    leases_gone[#leases_gone + 1] = lease_of(name, match(record, ATTEMPT_PATTERN))
  elseif phase == TIMER then
    counts = counts - DELAYED
    timers_gone[#timers_gone + 1] = member(name)
  elseif phase == PARKED then
    local takes = sub(record, -1)
    if takes ~= WAITS then
      counts = counts - IN_HAND - (takes == TAKES_SLOT and 1 or DELAYED)
      timers_gone[#timers_gone + 1] = member(name)
    end
  elseif not match(record, FIRST_NUMBER) then
    poison()
  end
end

-- Set a ready node free.
local function free(name, record)
  put(name, record)
  freed_count = freed_count + 1
  freed[freed_count] = name
end

-- Set a ready node free, or a timer for it where it is to wait.
local function free_in_time(name, attempt, kept, not_before)
  if tonumber(not_before) <= now then
    free(name, FREE .. attempt .. COLON .. kept .. COLON)
    return
  end
  put(name, TIMER .. attempt .. COLON .. kept .. COLON .. not_before)
  counts = counts + DELAYED
  add(timers, not_before, member(name))
end

-- Park a node that has started and that no worker has in hand. `rest`: when it is due, when it started, whether it takes a
-- concurrency slot; a node that waits has no timer here.
local function park(name, attempt, kept, rest)
  local due_at, _, takes = match(rest, PARKED_PATTERN)
  put(name, PARKED .. attempt .. COLON .. kept .. COLON .. rest)
  if takes ~= WAITS then
    counts = counts + IN_HAND + (takes == TAKES_SLOT and 1 or DELAYED)
    add(timers, due_at, member(name))
  end
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
local function write()
  for index = 1, freed_count do
    local name = freed[index]
    local record = value[name]
    if sub(record, 1, 1) == FREE and sub(record, -1) == COLON then
      value[name] = record .. list_add(name)
    end
  end
  if counts ~= counts_before then
    put(COUNTS, text_of(counts))
  end
  local gone
  if lists then
    put_piece(FREE_LIST, free_list)
    for field in pairs(lists) do
      if value[field] then
        put(field, value[field])
      else
        gone = gone or {}
        gone[#gone + 1] = field
      end
    end
  end
  local set = {}
  for index = 1, change_count do
    local field = changed[index]
    set[2 * index - 1], set[2 * index] = field, value[field]
  end
  call_in_parts('HSET', hash, set, 2 * change_count)
  if gone then
    call_in_parts('HDEL', hash, gone)
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
