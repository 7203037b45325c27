-- Append results to the result stream and end their leases. (guard, attempts)
-- KEYS of its own: results.
-- ARGV: how long a result may be on its way, in microseconds; number of messages, and these; as in attempts, with: nonce with
--   its length in front, worker, queued and started at.
-- Reply: an answer for each result; all were appended.
local until_when = string.format(WHOLE, now + number())
for _ = 1, number() do
  call('XADD', KEYS[OWN_KEY], '*', MESSAGE, argument())
end

-- The lease stays as it is: when it has run out, the sweep sees that it holds for longer now.
return answers(6, function(record, at)
  local attempt = ARGV[at + 1]
  local from = kept_from(record, RUNNING, attempt)
  if from then
    if holder_in(record, from, ARGV[at + 2]) then
      return YES, REPORTED .. sub(record, 2) .. COLON .. until_when
    end
    return REFUSED
  end
  from = kept_from(record, LIMBO, attempt)
  if from then
    in_hand = in_hand + 1
    return YES, REPORTED .. sub(record, 2) .. ARGV[at + 4] .. COLON .. ARGV[at + 5] .. COLON .. ARGV[at + 2] ..
      ARGV[at + 3] .. COLON .. until_when
  end
  return REFUSED
end)
