-- Renew leases, and adopt orphaned attempts. (guard, attempts)
-- ARGV: length of a lease in microseconds; for how many seconds a hash is kept; as in attempts.
-- Reply: an answer for each attempt.
local lease_until = string.format(WHOLE, now + number())
local keep = number()

answers(function(phase, record, at)
  if phase == RUNNING and is_held(record, ARGV[at + 2]) then
    lease(at, lease_until)
    return YES
  elseif phase == ORPHANED then
    lease(at, lease_until)
    counts = counts + IN_HAND
    return YES, RUNNING .. sub(record, 2) .. ARGV[at + 2]
  end
  return REFUSED
end, 'GT') -- a report that came before this has made the lease longer
-- While a worker holds an attempt of an execution, its hash is kept; the tombstone of a closed execution
-- expires.
for index = 1, execution_count do
  local key = KEYS[hashes + index]
  if call('HLEN', key) > 1 and call('TTL', key) < keep / 2 then
    call('EXPIRE', key, keep)
  end
end
return reply
