-- Move queued nodes to running, with a lease. (attempt)
-- ARGV: length of a lease in microseconds; number of requests; for each: execution, generation and attempt, name,
--   holder.
-- Reply: for each an answer, and when it was started and queued. PAUSED: it is queued still, and may not run now.
local at = 4 + count
local lease_until = string.format('%.0f', now + tonumber(ARGV[at]))
local started = pack('<dd', now, 0)
local reply, leases = {}, {}
for item = at + 2, at + 1 + 3 * tonumber(ARGV[at + 1]), 3 do
  local place, generation, attempt = unpacked('<I2dd', ARGV[item])
  local key = KEYS[hashes + place]
  local name, holder = ARGV[item + 1], ARGV[item + 2]
  local answer, phase, record, state, meta = find_attempt(key, name, generation, attempt)
  local started_at, queued_at = 0, 0
  if phase == 'q' and state == 'r' then
    queued_at = unpacked('<d', record, NODE_BYTES + 1)
    record = 'r' .. sub(record, 2, NODE_BYTES + 8) .. started .. holder
    call('HSET', key, '!', one_more_runs(meta), name, record)
    leases[#leases + 1] = lease_until
    leases[#leases + 1] = name .. ':' .. ARGV[3 + place]
    answer, started_at = YES, now
  elseif phase == 'q' then
    answer = PAUSED
  elseif phase == 'r' and is_held_by(record, holder) then -- the answer was lost, not the start
    queued_at, started_at = unpacked('<dd', record, NODE_BYTES + 1)
    answer = YES
  end
  local last = #reply
  reply[last + 1], reply[last + 2], reply[last + 3] = answer or REFUSED, started_at, queued_at
end
if leases[1] then
  call('ZADD', KEYS[2], unpack(leases))
end
return reply
