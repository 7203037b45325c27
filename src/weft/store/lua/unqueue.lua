-- Set queued nodes free whose execution does not run now: their tasks are gone. (state)
-- ARGV: number of nodes; for each: execution, generation and attempt, name.  Reply: an answer for each.
local reply = {}
local last = cursor + 2 * tonumber(ARGV[cursor])
for at = cursor + 1, last, 2 do
  local index, generation, attempt = unpacked('<I2dd', ARGV[at])
  local name = ARGV[at + 1]
  local ex = opened(index, name)
  local answer, node = find_attempt(ex, name, generation, attempt)
  if node then
    answer = REFUSED
    if node[PHASE] == 'q' and ex[STATE] ~= 'r' then
      leave_phase(ex, name, node)
      set_released(node, false)
      set_free(ex, name, node)
      answer = YES
    end
  end
  reply[#reply + 1] = answer
end
flush()
return reply
