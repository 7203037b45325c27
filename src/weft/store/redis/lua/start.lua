-- Move queued nodes to running, with a lease. (guard, attempts)
-- ARGV: length of a lease in microseconds; as in attempts, with: nonce with its length in front, worker.
-- Reply: now; for each request `kept:queued at`, or that and `:started at` where it was started before, or an answer. PAUSED:
--   it is queued still, and may not run now.
local lease_until = string.format(WHOLE, now + number())
reply[1] = now_text

return answers(4, function(record, at, state, id)
  local attempt = ARGV[at + 1]
  local from = kept_from(record, QUEUED, attempt)
  if from then
    if state ~= OPEN then
      return PAUSED
    end
    local about = match(record, KEPT_AND_TIME, from) or poison()
    lease(ARGV[at], id, lease_until)
    in_hand = in_hand + 1
    return about, RUNNING .. attempt .. COLON .. about .. COLON .. now_text .. COLON .. ARGV[at + 2] .. ARGV[at + 3]
  end
  from = kept_from(record, RUNNING, attempt)
  if from and holder_in(record, from, ARGV[at + 2]) then -- the answer was lost, not the start
    return match(record, KEPT_AND_TIMES, from)
  end
  return REFUSED
end)
