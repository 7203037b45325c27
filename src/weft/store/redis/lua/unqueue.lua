-- Set queued nodes free whose execution does not run now: their tasks are gone. (guard, execution, moves)
-- ARGV: as in moves.  Reply: an answer for each node.
return answers(function(name, record, phase, attempt, kept)
  if phase ~= QUEUED or state == OPEN then
    return REFUSED
  end
  leave(name, record)
  free_in_time(name, attempt, without_flag(kept, RELEASED), 0)
  return YES
end)
