-- Set queued nodes free whose execution does not run now: their tasks are gone. (state, moves)
-- ARGV: number of nodes; for each: execution, generation and attempt, name.  Reply: an answer for each.
return answers(2, function(ex, name, node)
  if node[PHASE] ~= 'q' or ex[STATE] == 'r' then
    return false
  end
  leave_phase(ex, name, node)
  set_released(node, false)
  set_free(ex, name, node)
  return true
end)
