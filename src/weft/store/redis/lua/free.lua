-- Answer with the free nodes of executions. (guard, execution, giving)
-- ARGV: for each execution: id.
-- Reply, for each execution: an answer; if it is YES: row, plan, input (nil: elsewhere), free nodes.
local function step(key, id)
  local got = fetch(key, {MARK, IN_FLIGHT, IN_HAND, FREE_LIST, ROW, PLAN, INPUT})
  local refused, state = refusal(got[1], match(got[1] or EMPTY, FIRST_NUMBER) or EMPTY)
  if refused then
    return refused
  end
  local ex = execution(key, id, got, {})
  ex.state, ex.window = state, window_of(got[6])
  local last = #reply
  reply[last + 1], reply[last + 2], reply[last + 3], reply[last + 4] = YES, got[5] or poison(), got[6], got[7]
  give(ex)
end

for place = 1, execution_count do
  local from = #reply
  local refused = guarded(place, step, argument())
  if refused then
    take_back(from)
    reply[from + 1] = refused
  end
end
return reply
