-- Move throttled nodes back to free, with a token reserved for each. (guard, execution, moves)
-- ARGV: as in moves.  Reply: an answer for each node.
return answers(function(name, record, phase, attempt, kept, rest)
  local is_released = find(kept, RELEASED, 1, true)
  if phase == QUEUED then -- released before, and still on its way
    return is_released and YES or REFUSED
  elseif phase ~= THROTTLED and phase ~= FREE then
    return REFUSED
  end
  kept = is_released and kept or with_flag(kept, RELEASED)
  if phase == THROTTLED then
    leave(name, record)
    free_in_time(name, attempt, kept, 0)
  else
    put(name, FREE .. attempt .. COLON .. kept .. COLON .. rest)
  end
  return YES
end)
