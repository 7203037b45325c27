-- What moves free nodes to queued and sends their tasks. (guard, execution)
-- KEYS of its own: the lanes' streams, behind each that of the crowded lane beside it.
-- ARGV: lease of a queued task in microseconds (0: none); 1 to send. Each task is two: `lane attempt name`, and the message.
local queued_for, is_sent = number(), number() == 1
local lanes, abouts = {}, {}
local queued_until = queued_for > 0 and string.format(WHOLE, now + queued_for)
local QUEUED_FIRST = QUEUED .. FIRST_ATTEMPT .. COLON .. COLON .. now_text .. COLON

-- Take apart what is said of a task: its lane, attempt, and name.
local function about_of(text)
  local about = abouts[text]
  if not about then
    local lane, attempt, name = match(text, TASK_PATTERN)
    about = {lane = tonumber(lane), attempt = attempt, name = name}
    abouts[text] = about
  end
  return about
end

-- Send a task, and return its entry and lane: so that the sweep can tell a task that waits from one that is lost. A lane
-- whose key is no stream refuses its own tasks alone: their nodes stay free until somebody has deleted the key.
local function sent(lane, task)
  local key = KEYS[OWN_KEY + lane - 1]
  local name = lanes[lane]
  if not name then -- a lane that is not listed is read by nobody
    name = sub(key, #KEYS[LANES_KEY] + LANE_FROM)
    lanes[lane] = name
    call('SADD', KEYS[LANES_KEY], name)
  end
  if not is_sent then
    return EMPTY
  end
  local entry = redis.pcall('XADD', key, '*', MESSAGE, task, QUEUED_AT, now_text)
  if type(entry) == 'table' then
    return find(entry.err, 'WRONGTYPE', 1, true) and REFUSED or error(entry.err, 0)
  end
  return entry .. SPACE .. name
end

-- Queue the task of a node, unless somebody else has. It is sent before the move is written: if that is refused nothing was
-- moved, and a task too many is refused at its start.
local function queue_task(about, task, window)
  local name, attempt = about.name, about.attempt
  local record = read(name)
  if not record or state ~= OPEN or sub(record, 1, 1) ~= FREE then
    return REFUSED
  end
  local is_full, queued = counts % IN_HAND >= window, QUEUED_FIRST
  if record ~= FREE_FIRST or attempt ~= FIRST_ATTEMPT then
    local _, current, kept, rest = parsed(record)
    if current ~= attempt then
      return REFUSED
    end
    queued = QUEUED .. attempt .. COLON .. kept .. COLON .. now_text .. COLON
    if is_full then
      put(name, FREE .. attempt .. COLON .. without_flag(kept, RELEASED) .. COLON .. rest)
    end
  end
  if is_full then
    return NO_SLOT
  end
  -- The tasks of an execution that has many in flight go beside those of the others, and workers take from both.
  local entry = sent(about.lane + (is_sent and counts % IN_HAND >= CROWD and 1 or 0), task)
  if entry == REFUSED then
    return REFUSED
  end
  if record == FREE_FIRST then -- freed in this call: it is to be written already
    value[name] = queued .. entry
  else
    leave(name, record)
    put(name, queued .. entry)
  end
  counts = counts + 1
  if queued_until then
    add(leases, queued_until, lease_of(name, attempt))
  end
  return YES
end
