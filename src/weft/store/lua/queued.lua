-- What moves free nodes to queued and sends their tasks. (after state)
-- KEYS of its own: lanes, the lanes' streams.
-- ARGV: lease of a queued task in microseconds (0: none); 1 to send; number of lanes, the member of each in the set of
--   lanes.
local queued_for, is_sent, lanes_from
local used = {}
-- Tasks, the lane of each, and the node whose record is to name its entry.
local sent, sent_to, sent_for = {}, {}, {}

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
  leave_phase(ex, name, node)
  node[PHASE], node[REST] = 'q', now_packed
  take_place(ex, name, node)
  put(ex, name, node)
  if queued_for > 0 then
    leases[member(ex, name)] = now + queued_for
  end
  if ex[FREE] == 0 then
    with_free[ex.id] = nil -- it was set free here, too: there is nothing to mark
  end
  used[lane] = true
  if is_sent then
    sent[#sent + 1] = task
    sent_to[#sent] = lane
    sent_for[#sent] = node
  end
  return YES
end

-- Before the moves are written: if this fails nothing was moved, and a task too many is refused at its start.
local function send_queued()
  for lane in pairs(used) do
    call('SADD', KEYS[7], ARGV[lanes_from + lane - 1])
  end
  for index = 1, #sent do
    local lane, node = sent_to[index], sent_for[index]
    local entry = call('XADD', KEYS[7 + lane], '*', 'm', sent[index], 'q', now_text)
    -- So that the sweep can tell a task that waits from one that is lost.
    node[REST] = node[REST] .. entry .. ' ' .. ARGV[lanes_from + lane - 1]
  end
end
