-- Renew leases, and adopt attempts out of limbo. (guard, attempts)
-- ARGV: length of a lease in microseconds; for how many seconds a hash is kept; as in attempts, with: nonce with its length
--   in front, worker, queued and started at.
-- Reply: an answer for each attempt.
local lease_until = string.format(WHOLE, now + number())
local keep = number()

answers(6, function(record, at, _, id)
  local attempt = ARGV[at + 1]
  local from = kept_from(record, RUNNING, attempt)
  if from and holder_in(record, from, ARGV[at + 2]) then
    lease(ARGV[at], id, lease_until)
    return YES
  end
  from = kept_from(record, REPORTED, attempt)
  if from and holder_in(record, from, ARGV[at + 2]) then
    return YES
  elseif kept_from(record, LIMBO, attempt) then
    lease(ARGV[at], id, lease_until)
    in_hand = in_hand + 1
    return YES, RUNNING .. sub(record, 2) .. ARGV[at + 4] .. COLON .. ARGV[at + 5] .. COLON .. ARGV[at + 2] .. ARGV[at + 3]
  end
  return REFUSED
end)
-- So long as somebody holds something of an execution, its hash is kept; the mark of a closed one goes in its time.
for place = 1, execution_count do
  local key = KEYS[hashes + place]
  if call('HLEN', key) > 1 and call('TTL', key) < keep / 2 then
    call('EXPIRE', key, keep)
  end
end
return reply
