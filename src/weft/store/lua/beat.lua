-- Renew leases, and adopt attempts out of limbo. (state)
-- ARGV: length of a lease in microseconds; number of attempts; for each: execution, generation, attempt, queued and
--   started at, name, nonce, worker.
-- Reply: an answer for each attempt.
local lease_until = string.format('%.0f', now + number())
local reply = {}
local last = cursor + 4 * tonumber(ARGV[cursor])
for at = cursor + 1, last, 4 do
  local index, generation, attempt, queued_at, started_at = unpacked('<I2dddd', ARGV[at])
  local name, nonce = ARGV[at + 1], ARGV[at + 2]
  local ex = opened(index, name)
  local answer, node = find_attempt(ex, name, generation, attempt)
  if node then
    answer = REFUSED
    if node[PHASE] == 'l' then
      node[PHASE], node[REST] = 'r', in_hand(queued_at, started_at, nonce, ARGV[at + 3])
      ex[RUNNING] = ex[RUNNING] + 1
      ex.dirty = true
      put(ex, name, node)
    end
    if (node[PHASE] == 'r' or node[PHASE] == 'p') and is_held_by(node, nonce) then
      answer = YES
      if node[PHASE] == 'r' then
        leases[member(ex, name)] = lease_until
      end
      -- So long as somebody holds something of it, its hash is kept.
      ex.dirty = ex.dirty or ex[EXPIRES] < now + 0.5 * keep
    end
  end
  reply[#reply + 1] = answer
end
flush()
return reply
