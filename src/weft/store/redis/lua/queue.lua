-- Move free nodes to queued and send their tasks, unless somebody else does. (guard, execution, queueing, giving)
-- ARGV: as in queueing; for each execution: id, generation, epoch, number of tasks; for each task: name, attempt, lane, task.
-- Reply: an answer for each task.
local function step(key, id, generation, epoch, from, count)
  local fields = {MARK, IN_FLIGHT, IN_HAND, FREE_LIST, PLAN}
  for task = 0, count - 1 do
    fields[task + 6] = ARGV[from + 4 * task]
  end
  local got, value = fetch(key, fields), {}
  local refused, state = refusal(got[1], generation, epoch)
  if refused then
    return refused
  end
  for task = 6, count + 5 do
    value[fields[task]] = got[task]
  end
  local ex = execution(key, id, got, value)
  ex.state, ex.window = state, window_of(got[5])
  for at = from, from + 4 * count - 1, 4 do
    reply[#reply + 1] = queue_task(ex, ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3])
  end
  write(ex)
end

for place = 1, execution_count do
  local id, generation, epoch, count = argument(), argument(), argument(), number()
  local from, given = cursor, #reply
  cursor = from + 4 * count
  local refused = guarded(place, step, id, generation, epoch, from, count)
  if refused then
    take_back(given)
    for task = 1, count do
      reply[given + task] = refused
    end
  end
end
write_sets()
return reply
