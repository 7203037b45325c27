-- Let leases run out now. (guard, attempts)
-- ARGV: as in attempts.  Reply: an answer for each attempt.
return answers(function(phase, record, at)
  if phase ~= RUNNING or not is_held(record, ARGV[at + 2]) then
    return REFUSED
  end
  lease(at, now_text)
  return YES
end)
