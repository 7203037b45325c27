-- Move attempts from one phase to another, each only if it is the current one. (after state)
-- What is to move lies in ARGV as a number of items and, for each, `width` arguments: execution, generation and
-- attempt (and what else a script packs behind these); name; the rest.

local function answers(width, move)
  local reply = {}
  local last = cursor + width * tonumber(ARGV[cursor])
  for at = cursor + 1, last, width do
    local index, generation, attempt = unpacked('<I2dd', ARGV[at])
    local name = ARGV[at + 1]
    local ex = opened(index, name)
    local answer, node = find_attempt(ex, name, generation, attempt)
    if node then
      answer = move(ex, name, node, at) and YES or REFUSED
    end
    reply[#reply + 1] = answer
  end
  flush()
  return reply
end
