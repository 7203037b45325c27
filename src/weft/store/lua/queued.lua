-- What moves free nodes to queued and sends their tasks. (after state)
-- KEYS of its own: lanes, the lanes' streams.
-- ARGV: lease of a queued task in microseconds (0: none); 1 to send; number of lanes, the member of each in the set of
--   lanes.
local queued_for, is_sent, lanes_from
local used = {}

local function read_lanes()
  queued_for, is_sent = number(), number() == 1
  local count = number()
  lanes_from = cursor
  cursor = cursor + count
end

-- Move a node, unless somebody else does, and have its task sent.
local function move_to_queued(ex, name, generation, attempt, epoch, lane, task)
  local answer, node = find_attempt(ex, name, generation, attempt, epoch)
  if not node then
    return answer
  elseif node[PHASE] ~= 'f' or ex[STATE] ~= 'r' then
    return REFUSED
  elseif ex[PLACES] >= ex[WINDOW] then
    if is_released(node) then
      set_released(node, false)
      put(ex, name, node)
    end
    return NO_PLACE
  end
  used[lane] = true
  local sent = ''
  if is_sent then
    -- Before the move: if this fails nothing was moved, and a task too many is refused at its start. A lane whose key is no
    -- stream refuses its own tasks alone: their nodes stay free until somebody has deleted the key.
    local entry = redis.pcall('XADD', KEYS[7 + lane], '*', 'm', task, 'q', now_text)
    if type(entry) == 'table' and find(entry.err, 'WRONGTYPE', 1, true) then
      return REFUSED
    elseif type(entry) == 'table' then
      entry = call('XADD', KEYS[7 + lane], '*', 'm', task, 'q', now_text) -- refused again, and loudly
    end
    -- So that the sweep can tell a task that waits from one that is lost.
    sent = entry .. ' ' .. ARGV[lanes_from + lane - 1]
  end
  leave_phase(ex, name, node)
  node[PHASE], node[REST] = 'q', now_packed .. sent
  take_place(ex, name, node)
  put(ex, name, node)
  if queued_for > 0 then
    leases[member(ex, name)] = now + queued_for
  end
  if ex[FREE] == 0 then
    with_free[ex.id] = nil -- it was set free here, too: there is nothing to mark
  end
  return YES
end

-- Have the lanes known that tasks were queued on, also one whose key has to be deleted.
local function note_lanes()
  for lane in pairs(used) do
    call('SADD', KEYS[7], ARGV[lanes_from + lane - 1])
  end
end
