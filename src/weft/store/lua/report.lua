-- Append results to the result stream and end their leases. (attempt)
-- KEYS of its own: results.
-- ARGV: how long a result may be on its way, in microseconds; number of results; for each: execution, generation,
--   attempt, queued and started at, name, holder, result.
-- Reply: an answer for each result; all were appended.
local at = 4 + count
local until_when = pack('<d', now + tonumber(ARGV[at]))
local reply = {}
for item = at + 2, at + 1 + 4 * tonumber(ARGV[at + 1]), 4 do
  local place, generation, attempt, queued_at, started_at = unpacked('<I2dddd', ARGV[item])
  local key = KEYS[hashes + place]
  local name, holder = ARGV[item + 1], ARGV[item + 2]
  call('XADD', KEYS[7], '*', 'm', ARGV[item + 3])
  local answer, phase, record, _, meta = find_attempt(key, name, generation, attempt)
  -- The lease stays as it is: when it has run out, the sweep sees that it holds for longer now.
  if phase == 'r' and is_held_by(record, holder) then
    call('HSET', key, name, 'p' .. sub(record, 2, NODE_BYTES + 16) .. until_when .. sub(record, NODE_BYTES + 25))
    answer = YES
  elseif phase == 'l' then
    record = 'p' .. sub(record, 2, NODE_BYTES) .. pack('<dd', queued_at, started_at) .. until_when .. holder
    call('HSET', key, '!', one_more_runs(meta), name, record)
    answer = YES
  end
  reply[#reply + 1] = answer or REFUSED
end
return reply
