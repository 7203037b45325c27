-- What the scripts of the store build on: an execution is one hash, read once, changed here, written once.
--
-- Nothing is written before flush(), so a script that fails midway has changed nothing. An execution whose hash
-- is gone, or was installed in another life of the store, is unknown: never "nothing left".
--
-- KEYS: token, leases, timers, free, active, unsettled; then the script's own; last a hash for each execution.
-- ARGV: now in microseconds (0: the server's time); for how many seconds a hash that nobody touches is kept; the
--   number of executions, the id of each; then the script's own. Numbers that belong together come packed: a tenth of
--   the cost of as many arguments.
--
-- Fields of a hash:
--   !         the numbers in META, and the token of the life it was installed in
--   x, h, i   the execution's row, the digest of its plan, its input where that is small: all opaque
--   .<node>   the record of an unsettled node as in NODE, and what its phase adds; or the outcome of a settled one
--   o.<node>  the output of a settled node, where it is large
--   v.<node>  what a node sees, where that is not all that it asks for: a bit for each parent, then names
--   F<n> P<n> the free nodes in the order in which they became free, and those with a place: lists in pieces
--
-- In here an execution is an array of META's numbers, a node one of NODE's: that is several times as fast as names.
--
-- States of an execution: r may run, p paused, t terminal, i being installed, c closed: only a mark is left.
-- Phases of a node, and what its record adds:
--   w waiting   double: not before; I4: how many parents have settled; a bit for each
--   f free      nothing           l limbo   nothing           n lined   nothing
--   t timer     double: due
--   q queued    double: queued at; where its task was sent with the move, the id of its entry, and its lane behind ' '
--   r running, p reported         three doubles: queued at, started at, until when its result may be on its
--               way; the nonce with its length; the worker
local YES, REFUSED, NO_PLACE, UNKNOWN = 1, 2, 3, 4

local META = '<c1I4I4dI4I4I4I4I4I4I4I4I4I4ddd'
local STATE, GENERATION, EPOCH, SEQ, WINDOW, PLACES, RUNNING, DELAYED = 1, 2, 3, 4, 5, 6, 7, 8
local UNSETTLED, FREE, DEADLINE, UPDATED, EXPIRES, META_LAST = 9, 10, 15, 16, 17, 17
local META_BYTES = 81
-- The lists: how their fields begin, where their first and last piece are numbered, and the field of most.
local FREE_NODES, PLACES_TAKEN = {'F', 11, 12, 'F0'}, {'P', 13, 14, 'P0'}

local NODE = '<c1BI4I4I4I4I4'
local PHASE, FLAGS, ATTEMPT, FAILURES, LOSSES, ISSUED, PIECE, NODE_LAST, REST = 1, 2, 3, 4, 5, 6, 7, 7, 8
local NODE_BYTES = 22
-- Flags: 1 a token of its tag is reserved for it, 2 what it sees is written down.
-- An outcome: S, the letter of the node's state, then the row.
local SETTLED = 83

-- A piece of a list that is longer than this is full.
local PIECE_BYTES = 2048
-- No call is given more values at once.
local MOST_VALUES = 1000

local pack, unpacked = struct.pack, struct.unpack
local byte, sub, find = string.byte, string.sub, string.find
local call = redis.call

local now = tonumber(ARGV[1])
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- A number becomes text for every command it goes into: what many have in common is made once.
local now_text, now_packed = string.format('%.0f', now), pack('<d', now)
local token = call('GET', KEYS[1])
local keep = tonumber(ARGV[2]) * 1000000
-- What is to be written to the sorted sets: member -> score, or false to remove it.
local leases, timers, with_free = {}, {}, {}
local unsettled_by = 0

local execution_count = tonumber(ARGV[3])
local executions = {}
local cursor = 4 + execution_count

-- Make an execution of what its hash has under `!`, and of other fields that were read with it.
local function made(index, packed, value)
  local key, id = KEYS[#KEYS - execution_count + index], ARGV[3 + index]
  local ex
  if packed and sub(packed, META_BYTES + 1) == token then
    ex = {key = key, id = id, value = value, nodes = {}, changed = {}, live = false, unpacked(META, packed)}
    ex.live = ex[STATE] == 'r' or ex[STATE] == 'p' or ex[STATE] == 't'
  else
    ex = {key = key, id = id, value = value, nodes = {}, changed = {}, live = false, ''}
  end
  executions[index] = ex
  return ex
end

-- Read an execution together with the fields that are named by these arguments.
local function open_with(index, from, to)
  local key = KEYS[#KEYS - execution_count + index]
  local got = call('HMGET', key, '!', 'F0', 'P0', unpack(ARGV, from, to))
  local value = {F0 = got[2], P0 = got[3]}
  for at = from, to do
    value[ARGV[at]] = got[at - from + 4]
  end
  return made(index, got[1], value)
end

-- Read all executions; for each the arguments have a number of fields, and these.
local function open_all()
  for index = 1, execution_count do
    local fields = tonumber(ARGV[cursor])
    open_with(index, cursor + 1, cursor + fields)
    cursor = cursor + 1 + fields
  end
end

-- Give an execution by its number, and have this field of it at hand.
local function opened(index, field)
  local ex = executions[index]
  if not ex then
    local got = call('HMGET', KEYS[#KEYS - execution_count + index], '!', field)
    ex = made(index, got[1], {[field] = got[2]})
  end
  return ex
end

local function argument()
  cursor = cursor + 1
  return ARGV[cursor - 1]
end

local function number()
  cursor = cursor + 1
  return tonumber(ARGV[cursor - 1])
end

local function change(ex, field, value)
  ex.changed[field] = true
  ex.value[field] = value
end

local function read(ex, field)
  local value = ex.value[field]
  if value == nil then
    value = call('HGET', ex.key, field)
    ex.value[field] = value
  end
  return value
end

local function is_settled(packed)
  return byte(packed) == SETTLED
end

-- Find an unsettled node that something has happened to; false: there is none of this name.
local function node_of(ex, name)
  local node = ex.nodes[name]
  if node == nil then
    local packed = read(ex, name)
    node = false
    if packed and not is_settled(packed) then
      node = {unpacked(NODE, packed)}
      if not find('wfqrplnt', node[PHASE], 1, true) then
        error('a record of no phase')
      end
      node[REST] = sub(packed, NODE_BYTES + 1)
    end
    ex.nodes[name] = node
  end
  return node
end

local function packed_node(node)
  return pack(NODE, unpack(node, 1, NODE_LAST)) .. node[REST]
end

local function put(ex, name, node)
  ex.nodes[name] = node
  ex.changed[name] = true
end

-- What the record of a waiting node ends with to which nothing has happened.
local NOTHING_YET = pack('<dI4', 0, 0)

local function new_waiting()
  return {'w', 0, 1, 0, 0, 0, 0, NOTHING_YET}
end

local function is_released(node)
  return node[FLAGS] % 2 == 1
end

local function has_view(node)
  return node[FLAGS] >= 2
end

-- List the names in a piece of a list.
local function names_in(piece)
  local names = {}
  for name in string.gmatch(piece or '', '[^,]+') do
    names[#names + 1] = name
  end
  return names
end

local function set_released(node, released)
  if is_released(node) ~= released then
    node[FLAGS] = node[FLAGS] + (released and 1 or -1)
  end
end

-- Answer for an execution that is not there: it was closed, unless the caller knows a later life.
local function missing(ex, generation, epoch)
  if ex[STATE] ~= 'c' or generation > ex[GENERATION] or epoch > ex[EPOCH] then
    return UNKNOWN
  end
  return REFUSED
end

-- Find exactly this attempt, unsettled; else say if the store is ahead of the caller, or behind.
local function find_attempt(ex, name, generation, attempt, epoch)
  if not ex.live then
    return missing(ex, generation, epoch or 0), nil
  end
  if generation > ex[GENERATION] or (epoch and epoch > ex[EPOCH]) then
    return UNKNOWN, nil
  end
  local node = node_of(ex, name)
  if not node or node[ATTEMPT] ~= attempt or generation ~= ex[GENERATION] or (epoch and epoch ~= ex[EPOCH]) then
    return REFUSED, nil
  end
  return nil, node
end

-- Name the field of a piece: to make text of a number takes long, and most lists have one piece.
local function piece_of(list, piece)
  return piece == 0 and list[4] or list[1] .. piece
end

local function list_add(ex, list, name)
  local tail = ex[list[3]]
  local names = read(ex, piece_of(list, tail))
  if names and #names >= PIECE_BYTES then
    tail = tail + 1
    ex[list[3]] = tail
    names = false
  end
  change(ex, piece_of(list, tail), (names or ',') .. name .. ',')
  return tail
end

local function list_remove(ex, list, name, piece)
  local names = read(ex, piece_of(list, piece))
  local from, to
  if names then
    from, to = find(names, ',' .. name .. ',', 1, true)
  end
  if not from then
    return
  end
  names = sub(names, 1, from) .. sub(names, to + 1)
  -- The first piece stays, empty: most executions need no other, and it is filled again at once.
  change(ex, piece_of(list, piece), (names ~= ',' or piece == 0) and names)
  local head, tail = ex[list[2]], ex[list[3]]
  if names ~= ',' or tail == 0 then
    return
  end
  while head < tail and #(read(ex, piece_of(list, head)) or '') < 2 do
    head = head + 1
  end
  if head == tail and #(read(ex, piece_of(list, tail)) or '') < 2 then
    head, tail = 0, 0
  end
  ex[list[2]], ex[list[3]] = head, tail
end

local function member(ex, name)
  return name .. ':' .. ex.id
end

local function take_place(ex, name, node)
  node[PIECE] = list_add(ex, PLACES_TAKEN, name)
  ex[PLACES] = ex[PLACES] + 1
  ex.dirty = true
end

local function set_free(ex, name, node)
  node[PHASE], node[REST] = 'f', ''
  node[PIECE] = list_add(ex, FREE_NODES, name)
  if ex[FREE] == 0 then
    -- A mark that is not taken back when none is left: the sweep does, where nothing else was freed meanwhile.
    with_free[ex.id] = now_text
  end
  ex[FREE] = ex[FREE] + 1
  ex.dirty = true
  put(ex, name, node)
end

-- Set a ready node free, or a timer for it where it is to wait.
local function free_in_time(ex, name, node, not_before)
  if not_before <= now then
    set_free(ex, name, node)
    return
  end
  node[PHASE], node[REST] = 't', pack('<d', not_before)
  ex[DELAYED] = ex[DELAYED] + 1
  ex.dirty = true
  timers[member(ex, name)] = not_before
  put(ex, name, node)
end

local function leave_phase(ex, name, node)
  local phase = node[PHASE]
  if phase == 'f' then
    list_remove(ex, FREE_NODES, name, node[PIECE])
    ex[FREE] = ex[FREE] - 1
  elseif phase == 't' then
    ex[DELAYED] = ex[DELAYED] - 1
    timers[member(ex, name)] = false
  elseif phase == 'n' then
    ex[DELAYED] = ex[DELAYED] - 1
    leases[member(ex, name)] = false
  elseif phase ~= 'w' then
    list_remove(ex, PLACES_TAKEN, name, node[PIECE])
    ex[PLACES] = ex[PLACES] - 1
    leases[member(ex, name)] = false
    if phase == 'r' or phase == 'p' then
      ex[RUNNING] = ex[RUNNING] - 1
    end
  end
  node[PIECE] = 0
  ex.dirty = true
end

local HAND = '<dddI4'

local function in_hand(queued_at, started_at, nonce, worker)
  return pack(HAND, queued_at, started_at, 0, #nonce) .. nonce .. worker
end

local function is_held_by(node, nonce)
  local _, _, _, bytes, at = unpacked(HAND, node[REST])
  return sub(node[REST], at, at + bytes - 1) == nonce
end

-- Call with any number of values, so many at a time that no call has too many.
local function call_in_parts(command, key, values)
  for from = 1, #values, MOST_VALUES do
    call(command, key, unpack(values, from, math.min(from + MOST_VALUES - 1, #values)))
  end
end

local function write_scores(key, scores)
  local added, removed = {}, {}
  for name, score in pairs(scores) do
    if score then
      added[#added + 1] = score
      added[#added + 1] = name
    else
      removed[#removed + 1] = name
    end
  end
  call_in_parts('ZADD', key, added)
  call_in_parts('ZREM', key, removed)
end

local function write_execution(ex)
  local renewed = ex.dirty and ex[EXPIRES] < now + 0.85 * keep
  if renewed then
    ex[EXPIRES] = now + keep
  end
  local meta = ex.dirty and pack(META, unpack(ex, 1, META_LAST)) .. token
  local first = next(ex.changed)
  if first and ex.nodes[first] and not next(ex.changed, first) and not renewed then
    -- One node, as nearly always.
    if meta then
      call('HSET', ex.key, '!', meta, first, packed_node(ex.nodes[first]))
    else
      call('HSET', ex.key, first, packed_node(ex.nodes[first]))
    end
    return
  end
  local set, gone = {}, {}
  if meta then
    set[1], set[2] = '!', meta
  end
  for field in pairs(ex.changed) do
    local node = ex.nodes[field]
    local value = node and packed_node(node) or ex.value[field]
    if value then
      set[#set + 1] = field
      set[#set + 1] = value
    else
      gone[#gone + 1] = field
    end
  end
  call_in_parts('HSET', ex.key, set)
  call_in_parts('HDEL', ex.key, gone)
  if renewed then
    call('EXPIRE', ex.key, ARGV[2])
  end
end

local function flush()
  for index = 1, execution_count do
    local ex = executions[index]
    if ex and (ex.dirty or next(ex.changed)) then
      write_execution(ex)
    end
  end
  write_scores(KEYS[4], with_free)
  write_scores(KEYS[2], leases)
  write_scores(KEYS[3], timers)
  if unsettled_by ~= 0 then
    call('INCRBY', KEYS[6], unsettled_by)
  end
end
