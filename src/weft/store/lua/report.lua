-- Append results to the result stream and end their leases. (state)
-- KEYS of its own: results.
-- ARGV: how long a result may be on its way, in microseconds; number of results; for each: execution, generation,
--   attempt, queued and started at, name, nonce, worker, result.
-- Reply: an answer for each result; all were appended.
local reported_for = number()
local reply = {}
local last = cursor + 5 * tonumber(ARGV[cursor])
for at = cursor + 1, last, 5 do
  local index, generation, attempt, queued_at, started_at = unpacked('<I2dddd', ARGV[at])
  local name, nonce = ARGV[at + 1], ARGV[at + 2]
  local ex = opened(index, name)
  local answer, node = find_attempt(ex, name, generation, attempt)
  if node then
    answer = REFUSED
    if node[PHASE] == 'l' then
      node[REST] = in_hand(queued_at, started_at, nonce, ARGV[at + 3])
      ex[RUNNING] = ex[RUNNING] + 1
      ex.dirty = true
      answer = YES
    elseif node[PHASE] == 'r' and is_held_by(node, nonce) then
      answer = YES
    end
    if answer == YES then
      -- The lease stays as it is: when it has run out, the sweep sees that it holds for longer now.
      node[PHASE] = 'p'
      node[REST] = sub(node[REST], 1, 16) .. pack('<d', now + reported_for) .. sub(node[REST], 25)
      put(ex, name, node)
    end
  end
  reply[#reply + 1] = answer
  call('XADD', KEYS[8], '*', 'm', ARGV[at + 4])
end
flush()
return reply
