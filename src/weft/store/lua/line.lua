-- Move free nodes, or queued ones that found no token, to the line of their tag. (state)
-- ARGV: for how long, in microseconds, before they are free again; number of nodes; for each: execution, generation
--   and attempt, name.
-- Reply: an answer for each.
local lined_for = number()
local reply = {}
local last = cursor + 2 * tonumber(ARGV[cursor])
for at = cursor + 1, last, 2 do
  local index, generation, attempt = unpacked('<I2dd', ARGV[at])
  local name = ARGV[at + 1]
  local ex = opened(index, name)
  local answer, node = find_attempt(ex, name, generation, attempt)
  if node then
    answer = REFUSED
    if node[PHASE] == 'f' or node[PHASE] == 'q' then
      leave_phase(ex, name, node)
      set_released(node, false)
      node[PHASE], node[REST] = 'n', ''
      leases[member(ex, name)] = now + lined_for
      ex[DELAYED] = ex[DELAYED] + 1
      put(ex, name, node)
      answer = YES
    end
  end
  reply[#reply + 1] = answer
end
flush()
return reply
