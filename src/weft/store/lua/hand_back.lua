-- Let leases run out now. (state, moves)
-- ARGV: number of attempts; for each: execution, generation and attempt, name, nonce.  Reply: an answer for each.
return answers(3, function(ex, name, node, at)
  if node[PHASE] ~= 'r' or not is_held_by(node, ARGV[at + 2]) then
    return false
  end
  leases[member(ex, name)] = now_text
  return true
end)
