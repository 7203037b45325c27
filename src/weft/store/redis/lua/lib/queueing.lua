-- What moves free nodes to queued and sends their tasks. (guard, execution)
-- KEYS of its own: lanes, the lanes' streams.
-- ARGV: lease of a queued task in microseconds (0: none); 1 to send; number of lanes, the member of each in the set of
--   lanes.
local queued_for, is_sent = number(), number() == 1
local lanes_from = cursor + 1
cursor = lanes_from + tonumber(ARGV[cursor])
local listed = {}
local queued_until = string.format(WHOLE, now + queued_for)
local QUEUED_FIRST = QUEUED .. FIRST_ATTEMPT .. COLON .. COLON .. now_text .. COLON

-- Send a task, and return its entry and lane: so that the sweep can tell a task that waits from one that is lost. A lane
-- whose key is no stream refuses its own tasks alone: their nodes stay free until somebody has deleted the key.
local function sent(lane, task)
  local name = ARGV[lanes_from + lane - 1]
  if not listed[lane] then -- a lane that is not listed is read by nobody
    listed[lane] = true
    call('SADD', KEYS[OWN_KEY], name)
  end
  if not is_sent then
    return EMPTY
  end
  local entry = redis.pcall('XADD', KEYS[OWN_KEY + lane], '*', MESSAGE, task, QUEUED_AT, now_text)
  if type(entry) == 'table' then
    return find(entry.err, 'WRONGTYPE', 1, true) and REFUSED or error(entry.err, 0)
  end
  return entry .. SPACE .. name
end

-- Queue the task of a node, unless somebody else has. It is sent before the move is written: if that is refused nothing was
-- moved, and a task too many is refused at its start.
local function queue_task(ex, name, attempt, lane, task)
  local record = read(ex, name)
  if not record or ex.state ~= OPEN or byte(record) ~= byte(FREE) then
    return REFUSED
  end
  local queued = QUEUED_FIRST
  if record ~= FREE_FIRST or attempt ~= FIRST_ATTEMPT then
    local _, current, kept, rest = parsed(record)
    if current ~= attempt then
      return REFUSED
    end
    queued = QUEUED .. attempt .. COLON .. kept .. COLON .. now_text .. COLON
    if ex.in_flight >= ex.window then
      put_late(ex, name, FREE .. attempt .. COLON .. without_flag(kept, RELEASED) .. COLON .. rest)
    end
  end
  if ex.in_flight >= ex.window then
    return NO_PLACE
  end
  local entry = sent(tonumber(lane), task)
  if entry == REFUSED then
    return REFUSED
  end
  if record ~= FREE_FIRST then
    leave(ex, name, record)
    put_late(ex, name, queued .. entry)
  else -- it is to be written already
    ex.value[name] = queued .. entry
  end
  ex.in_flight = ex.in_flight + 1
  if queued_for > 0 then
    add(leases, queued_until, name .. COLON .. ex.id)
  end
  return YES
end
