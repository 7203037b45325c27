-- Move queued nodes to running, with a lease. (guard, attempts)
-- ARGV: length of a lease in microseconds; as in attempts.
-- Reply: now; for each request an answer, or the node's field as it was: queued, or running where it was started before by
--   the same request. PAUSED: it is queued still, and may not run now.
local lease_until = string.format(WHOLE, now + number())
local started = COLON .. now_text

return {now_text, answers(function(phase, record, at, state)
  if phase == QUEUED then
    if state ~= OPEN then
      return PAUSED
    end
    local upto = match(record, UPTO_QUEUED) or poison()
    lease(at, lease_until)
    counts = counts + IN_HAND
    return record, RUNNING .. sub(record, 2, upto - 1) .. started .. ARGV[at + 2]
  elseif phase == RUNNING and is_held(record, ARGV[at + 2]) then
    return record -- the answer was lost, not the start
  end
  return REFUSED
end)}
