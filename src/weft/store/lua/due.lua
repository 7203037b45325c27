-- Fire timers, and look at leases and at executions that were listed: what time has brought about of them. (state)
-- KEYS of its own: streams of tasks.
-- ARGV: length of a lease in microseconds, and of that of a queued task (0: it has none); for each execution the number
--   of fields to read, and these; number of members; for each: timer, lease or free; execution, name ('' the execution
--   itself); of a queued task the number of its stream and the id of its entry, else 0 and ''.
-- Reply, for each: nothing; woken, generation; deadline, generation; or expired, generation, digest, record.
local lease_for, queued_for = number(), number()
open_all()
local reply = {}

local function say(...)
  for index = 1, select('#', ...) do
    reply[#reply + 1] = select(index, ...)
  end
end

local function fire(ex, name)
  local node = ex.live and name ~= '' and node_of(ex, name)
  if ex[STATE] == 'i' then
    say('nothing')
  elseif ex.live and name == '' then
    if ex[DEADLINE] == 0 then
      timers[member(ex, '')] = false
      say('nothing')
    elseif ex[DEADLINE] > now then
      timers[member(ex, '')] = ex[DEADLINE]
      say('nothing')
    else
      -- Not taken out for good: if the commit that should follow is lost, it fires again.
      timers[member(ex, '')] = now + lease_for
      say('deadline', ex[GENERATION])
    end
  elseif node and node[PHASE] == 't' then
    local due_at = unpacked('<d', node[REST])
    if due_at > now then
      timers[member(ex, name)] = due_at
      say('nothing')
    else
      leave_phase(ex, name, node)
      set_free(ex, name, node)
      say('woken', ex[GENERATION])
    end
  else
    timers[member(ex, name)] = false
    say('nothing')
  end
end

-- Whether the task of a queued node is lost: its entry is not in its stream. One that the transport has sent by itself
-- cannot be looked for, and is taken for lost.
local function is_lost(node, stream, entry)
  if stream == 0 then
    return #node[REST] == 8
  end
  local found = redis.pcall('XRANGE', KEYS[6 + stream], entry, entry)
  return found.err ~= nil or found[1] == nil
end

local function look_at_lease(ex, name, stream, entry)
  local node = ex.live and node_of(ex, name)
  local phase = node and node[PHASE] or ''
  local score = call('ZSCORE', KEYS[2], member(ex, name))
  if ex[STATE] == 'i' or not score or tonumber(score) > now then
    say('nothing')
  elseif phase == 'q' and queued_for > 0 and not is_lost(node, stream, entry) then
    -- It waits for a worker.
    leases[member(ex, name)] = now + queued_for
    say('nothing')
  elseif phase == 'n' or (phase == 'q' and queued_for > 0) then
    -- Its task is lost: sent again, as the same attempt. Or the line forgot it.
    leave_phase(ex, name, node)
    set_released(node, false)
    set_free(ex, name, node)
    say('woken', ex[GENERATION])
  elseif phase == 'p' and select(3, unpacked(HAND, node[REST])) > now then
    -- It was reported since. That its lease is longer now is written down here, and not with every result.
    leases[member(ex, name)] = select(3, unpacked(HAND, node[REST]))
    say('nothing')
  elseif phase == 'r' or phase == 'p' or phase == 'l' then
    say('expired', ex[GENERATION], read(ex, 'h'), packed_node(node))
  else
    leases[member(ex, name)] = false
    say('nothing')
  end
end

for _ = 1, number() do
  local kind, ex, name, stream, entry = argument(), executions[number()], argument(), number(), argument()
  if kind == 'timer' then
    fire(ex, name)
  elseif kind == 'lease' then
    look_at_lease(ex, name, stream, entry)
  elseif ex.live and ex[FREE] > 0 then
    say('woken', ex[GENERATION])
  else
    if ex[STATE] ~= 'i' then
      with_free[ex.id] = false
    end
    say('nothing')
  end
end
flush()
return reply
