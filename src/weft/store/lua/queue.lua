-- Move free nodes to queued and send their tasks, unless somebody else does. (state, queued)
-- ARGV: as in queued; for each execution the number of fields to read, and these; number of tasks, for each: execution,
--   generation, attempt, epoch and lane, name, task.
-- Reply: an answer for each task.
read_lanes()
open_all()
local reply = {}
local last = cursor + 3 * tonumber(ARGV[cursor])
for at = cursor + 1, last, 3 do
  local index, generation, attempt, epoch, lane = unpacked('<I2dddd', ARGV[at])
  local answer = move_to_queued(executions[index], ARGV[at + 1], generation, attempt, epoch, lane, ARGV[at + 2])
  reply[#reply + 1] = answer
end
note_lanes()
flush()
return reply
