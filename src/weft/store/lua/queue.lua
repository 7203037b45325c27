-- Move free nodes to queued and send their tasks, unless somebody else does. (state)
-- KEYS of its own: lanes, the lanes' streams.
-- ARGV: lease of a queued task in microseconds (0: none); 1 to send; number of lanes, the member of each in the set of
--   lanes; for each execution the number of fields to read, and these; number of tasks, for each: execution,
--   generation, attempt, epoch and lane, name, task.
-- Reply: an answer for each task.
local queued_for, is_sent, lane_count = number(), number() == 1, number()
local lanes_from = cursor
cursor = cursor + lane_count
open_all()
local used, sent, reply = {}, {}, {}
local last = cursor + 3 * tonumber(ARGV[cursor])
for at = cursor + 1, last, 3 do
  local index, generation, attempt, epoch, lane = unpacked('<I2dddd', ARGV[at])
  local ex, name = executions[index], ARGV[at + 1]
  local answer, node = find_attempt(ex, name, generation, attempt, epoch)
  if node then
    if node[PHASE] ~= 'f' or ex[STATE] ~= 'r' then
      answer = REFUSED
    elseif ex[PLACES] >= ex[WINDOW] then
      if is_released(node) then
        set_released(node, false)
        put(ex, name, node)
      end
      answer = NO_PLACE
    else
      leave_phase(ex, name, node)
      node[PHASE], node[REST] = 'q', pack('<d', now)
      take_place(ex, name, node)
      put(ex, name, node)
      if queued_for > 0 then
        leases[member(ex, name)] = now + queued_for
      end
      used[lane] = true
      if is_sent then
        sent[#sent + 1] = {lane, ARGV[at + 2]}
      end
      answer = YES
    end
  end
  reply[#reply + 1] = answer
end
-- Sent first: if this fails nothing was moved, and a task too many is refused at its start.
for lane in pairs(used) do
  call('SADD', KEYS[8], ARGV[lanes_from + lane - 1])
end
for index = 1, #sent do
  call('XADD', KEYS[8 + sent[index][1]], '*', 'm', sent[index][2], 'q', now_text)
end
flush()
return reply
