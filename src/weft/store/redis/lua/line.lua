-- Move free nodes, or queued ones that found no token, to the line of their tag. (guard, execution, moves)
-- ARGV: for how long, in microseconds, before they are free again; as in moves.  Reply: an answer for each node.
local lined_until = string.format(WHOLE, now + number())

return answers(function(ex, name, record, phase, attempt, kept)
  if phase ~= FREE and phase ~= QUEUED then
    return REFUSED
  end
  leave(ex, name, record)
  ex.delayed_by = ex.delayed_by + 1
  add(leases, lined_until, name .. COLON .. ex.id)
  put(ex, name, LINED .. attempt .. COLON .. without_flag(kept, RELEASED) .. COLON)
  return YES
end)
