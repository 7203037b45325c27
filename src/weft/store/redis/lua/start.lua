-- Move queued nodes to running, with a lease. (guard, attempts)
-- ARGV: length of a lease in microseconds; as in attempts.
-- Reply: for each request an answer, or the node's field as it is then: running, perhaps since the same request came before.
--   PAUSED: it is queued still, and may not run now.
local lease_until = string.format(WHOLE, now + number())
local started = COLON .. now_text

return answers(function(phase, record, at, state)
  if phase == QUEUED then
    if state ~= OPEN then
      return PAUSED
    end
    local upto = match(record, UPTO_QUEUED) or poison()
    lease(at, lease_until)
    counts = counts + IN_HAND
    local running = RUNNING .. sub(record, 2, upto - 1) .. started .. ARGV[at + 2]
    return running, running
  elseif phase == RUNNING and is_held(record, ARGV[at + 2]) then
    return record -- the answer was lost, not the start
  end
  return REFUSED
end)
