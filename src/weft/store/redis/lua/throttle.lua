-- Throttle free nodes, or queued ones that found no token: they are in the wait queue of their tag. (guard, execution, moves)
-- A free node with a reserved token is refused: the limits have released it, and would not do so again.
-- ARGV: for how long, in microseconds, before they are free again; 1: queued nodes, 0: free ones; as in moves.
-- Reply: an answer for each node.
local throttled_until = string.format(WHOLE, now + number())
local was_queued = number() == 1

return answers(function(name, record, phase, attempt, kept)
  if phase ~= (was_queued and QUEUED or FREE) or (not was_queued and find(kept, RELEASED, 1, true)) then
    return REFUSED
  end
  leave(name, record)
  counts = counts + DELAYED
  add(leases, throttled_until, lease_of(name, attempt))
  put(name, THROTTLED .. attempt .. COLON .. without_flag(kept, RELEASED) .. COLON)
  return YES
end)
