-- Move free nodes, or queued ones that found no token, to the line of their tag. (guard, execution, moves)
-- ARGV: for how long, in microseconds, before they are free again; as in moves.  Reply: an answer for each node.
local lined_until = string.format(WHOLE, now + number())

return answers(function(name, record, phase, attempt, kept)
  if phase ~= FREE and phase ~= QUEUED then
    return REFUSED
  end
  leave(name, record)
  counts = counts + DELAYED
  add(leases, lined_until, lease_of(name, attempt))
  put(name, LINED .. attempt .. COLON .. without_flag(kept, RELEASED) .. COLON)
  return YES
end)
