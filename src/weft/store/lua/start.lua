-- Move queued nodes to running, with a lease. (state)
-- ARGV: length of a lease in microseconds; number of requests; for each: execution, generation and attempt, name,
--   nonce, worker.
-- Reply: for each an answer, and when it was started and queued.
local lease_until = string.format('%.0f', now + number())
local reply = {}
local last = cursor + 4 * tonumber(ARGV[cursor])
for at = cursor + 1, last, 4 do
  local index, generation, attempt = unpacked('<I2dd', ARGV[at])
  local name, nonce = ARGV[at + 1], ARGV[at + 2]
  local ex = opened(index, name)
  local answer, node = find_attempt(ex, name, generation, attempt)
  local started_at, queued_at = 0, 0
  if node then
    answer = REFUSED
    if node[PHASE] == 'r' and is_held_by(node, nonce) then -- the answer was lost, not the start
      queued_at, started_at = unpacked(HAND, node[REST])
      answer = YES
    elseif node[PHASE] == 'q' and ex[STATE] ~= 'r' then
      leave_phase(ex, name, node)
      set_released(node, false)
      set_free(ex, name, node)
    elseif node[PHASE] == 'q' then
      queued_at = unpacked('<d', node[REST])
      node[PHASE], node[REST] = 'r', in_hand(queued_at, now, nonce, ARGV[at + 3])
      ex[RUNNING] = ex[RUNNING] + 1
      ex.dirty = true
      leases[member(ex, name)] = lease_until
      put(ex, name, node)
      answer, started_at = YES, now
    end
  end
  reply[#reply + 1] = answer
  reply[#reply + 1] = started_at
  reply[#reply + 1] = queued_at
end
flush()
return reply
