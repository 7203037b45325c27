-- List what time has brought about, and change nothing: `due` does, with the executions' hashes at hand. (guard)
-- KEYS of its own: when leases were last swept, and until when none expires.
-- ARGV: how long free nodes may wait, in microseconds; how many to list of each; how many leases and how many executions
--   with free nodes to pass over; length of a lease; the longest gap between two sweeps.
-- Reply: now; members of timers, of leases, ids with free nodes; until when no lease expires; the next lease and timer
--   (empty: none).
local idle, most, leases_passed, free_passed = number(), argument(), argument(), argument()
local lease_for, longest_gap = number(), number()
-- Each sorted set has held a member since this incarnation began that is never removed. Without it the set was lost, and
-- nobody would ever wait for what was in it: then this incarnation is over.
if incarnation_id ~= EMPTY then
  for index = LEASES_KEY, ACTIVE_KEY do
    local score = redis.pcall('ZSCORE', KEYS[index], SENTINEL)
    if not score or type(score) == 'table' then
      call('UNLINK', unpack(KEYS, INCARNATION_KEY, UNSETTLED_KEY))
      break
    end
  end
end
local function upto(key, score, passed)
  return call('ZRANGEBYSCORE', key, '-inf', string.format(WHOLE, score), 'LIMIT', passed, most)
end
local function first(key)
  local found = call('ZRANGE', key, 0, 0, 'WITHSCORES')
  return found[1] and found[1] ~= SENTINEL and found[2] or EMPTY
end
-- A lease expires only if its worker could have renewed it. Every sweep writes: a server that refuses writes (no memory,
-- no disk, a replica) refuses the sweep too. After a gap in which nobody swept, workers may have been refused as well:
-- they get a whole lease to come back.
local swept = redis.pcall('GET', KEYS[OWN_KEY])
local swept_at, grace_until = match(type(swept) == 'string' and swept or EMPTY, SWEPT_PATTERN)
grace_until = tonumber(grace_until) or 0
if swept_at and now - tonumber(swept_at) > longest_gap then
  grace_until = now + lease_for
end
call('SET', KEYS[OWN_KEY], string.format(SWEPT, now, grace_until))
return {
  now, upto(KEYS[TIMERS_KEY], now, 0), now < grace_until and {} or upto(KEYS[LEASES_KEY], now, leases_passed),
  upto(KEYS[FREE_KEY], now - idle, free_passed), grace_until, first(KEYS[LEASES_KEY]), first(KEYS[TIMERS_KEY]),
}
