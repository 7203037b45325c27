-- Tasks that follow on what a call merges: queued if their nodes are free then. (after state, queued)
-- ARGV, where there are such tasks: as in queued; for each: execution, generation, attempt, epoch and lane; name, task.

-- None of an execution of which something was refused in this call: they may follow on that.
local function queue_ahead()
  if cursor > #ARGV then
    return
  end
  read_lanes()
  for at = cursor, #ARGV, 3 do
    local index, generation, attempt, epoch, lane = unpacked('<I2dddd', ARGV[at])
    local ex, name = executions[index], ARGV[at + 1]
    if not ex.refused and move_to_queued(ex, name, generation, attempt, epoch, lane, ARGV[at + 2]) == YES then
      ex.queued = ex.queued or {}
      ex.queued[#ex.queued + 1] = name
    end
  end
  note_lanes()
end

-- Append to a flat reply how many were queued, and their names.
local function tell_queued(ex, reply)
  local queued = ex.queued or {}
  reply[#reply + 1] = #queued
  for place = 1, #queued do
    reply[#reply + 1] = queued[place]
  end
end
