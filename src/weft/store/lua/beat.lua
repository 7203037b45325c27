-- Renew leases, and adopt attempts out of limbo. (state, moves)
-- ARGV: length of a lease in microseconds; number of attempts; for each: execution, generation, attempt, queued and
--   started at, name, nonce, worker.
-- Reply: an answer for each attempt.
local lease_until = string.format('%.0f', now + number())

return answers(4, function(ex, name, node, at)
  local nonce = ARGV[at + 2]
  if node[PHASE] == 'l' then
    local _, _, _, queued_at, started_at = unpacked('<I2dddd', ARGV[at])
    node[PHASE], node[REST] = 'r', in_hand(queued_at, started_at, nonce, ARGV[at + 3])
    ex[RUNNING] = ex[RUNNING] + 1
    ex.dirty = true
    put(ex, name, node)
  end
  if (node[PHASE] ~= 'r' and node[PHASE] ~= 'p') or not is_held_by(node, nonce) then
    return false
  end
  if node[PHASE] == 'r' then
    leases[member(ex, name)] = lease_until
  end
  -- So long as somebody holds something of it, its hash is kept.
  ex.dirty = ex.dirty or ex[EXPIRES] < now + 0.5 * keep
  return true
end)
