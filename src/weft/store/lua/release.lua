-- Move lined nodes back to free, with a token reserved for each. (state, moves)
-- ARGV: number of nodes; for each: execution, generation and attempt, name.  Reply: an answer for each.
return answers(2, function(ex, name, node)
  if node[PHASE] == 'q' then -- released before, and still on its way
    return is_released(node)
  end
  if node[PHASE] ~= 'n' and node[PHASE] ~= 'f' then
    return false
  end
  set_released(node, true)
  if node[PHASE] == 'n' then
    leave_phase(ex, name, node)
    set_free(ex, name, node)
  end
  put(ex, name, node)
  return true
end)
