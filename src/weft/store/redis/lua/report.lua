-- Append results to the result stream and end their leases. (guard, attempts)
-- KEYS of its own: results.
-- ARGV: how long a result may be on its way, in microseconds; the results, as one message; as in attempts.
-- Reply: an answer for each result; all were appended.
local until_when = COLON .. string.format(WHOLE, now + number())
call('XADD', KEYS[OWN_KEY], '*', MESSAGE, argument())

-- The lease stays as it is: when it has run out, the sweep sees that it holds for longer now.
return answers(function(phase, record, at)
  if phase == RUNNING and is_held(record, ARGV[at + 2]) then
    return YES, REPORTED .. sub(record, 2) .. until_when
  elseif phase == LIMBO then
    counts = counts + IN_HAND
    return YES, REPORTED .. sub(record, 2) .. ARGV[at + 2] .. until_when
  end
  return REFUSED
end)
