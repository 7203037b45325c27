-- Move free nodes, or queued ones that found no token, to the line of their tag. (state, moves)
-- ARGV: for how long, in microseconds, before they are free again; number of nodes; for each: execution, generation
--   and attempt, name.
-- Reply: an answer for each.
local lined_for = number()

return answers(2, function(ex, name, node)
  if node[PHASE] ~= 'f' and node[PHASE] ~= 'q' then
    return false
  end
  leave_phase(ex, name, node)
  set_released(node, false)
  node[PHASE], node[REST] = 'n', ''
  leases[member(ex, name)] = now + lined_for
  ex[DELAYED] = ex[DELAYED] + 1
  put(ex, name, node)
  return true
end)
