-- Let leases run out now. (state)
-- ARGV: number of attempts; for each: execution, generation and attempt, name, nonce.  Reply: an answer for each.
local reply = {}
local last = cursor + 3 * tonumber(ARGV[cursor])
for at = cursor + 1, last, 3 do
  local index, generation, attempt = unpacked('<I2dd', ARGV[at])
  local name = ARGV[at + 1]
  local ex = opened(index, name)
  local answer, node = find_attempt(ex, name, generation, attempt)
  if node then
    answer = REFUSED
    if node[PHASE] == 'r' and is_held_by(node, ARGV[at + 2]) then
      leases[member(ex, name)] = now_text
      answer = YES
    end
  end
  reply[#reply + 1] = answer
end
flush()
return reply
