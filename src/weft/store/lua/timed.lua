-- List what time has brought about, and change nothing: `due` does, with the executions' hashes at hand.
-- KEYS: token, leases, timers, free, active, unsettled; last: when leases were last swept, and until when none expires.
-- ARGV: now (0: the server's); how long free nodes may wait, in microseconds; how many to list of each; how many leases and
--   how many executions with free nodes to pass over; length of a lease; the longest gap between two sweeps.
-- Reply: now; members of timers, of leases, ids with free nodes; until when no lease expires; the next lease and timer
--   ('' none).
local now = tonumber(ARGV[1])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- Each sorted set has held a mark since this life began. Without it the set was lost, and nobody would ever wait for what
-- was in it: then this life is over.
if redis.call('EXISTS', KEYS[1]) == 1 then
  for index = 2, 5 do
    if not redis.call('ZSCORE', KEYS[index], '!') then
      redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6])
      break
    end
  end
end
local function upto(key, score, offset)
  return redis.call('ZRANGEBYSCORE', key, '-inf', string.format('%.0f', score), 'LIMIT', offset, ARGV[3])
end
local function first(key)
  local found = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  return found[1] and found[1] ~= '!' and found[2] or ''
end
-- A lease expires only if its worker could have renewed it. Every sweep writes: a server that refuses writes (no memory,
-- no disk, a replica) refuses the sweep too. After a gap in which nobody swept, workers may have been refused as well:
-- they get a whole lease to come back.
local swept = redis.pcall('GET', KEYS[#KEYS])
local swept_at, grace_until = string.match(type(swept) == 'string' and swept or '', '^(%d+) (%d+)$')
grace_until = tonumber(grace_until) or 0
if swept_at and now - tonumber(swept_at) > tonumber(ARGV[7]) then
  grace_until = now + tonumber(ARGV[6])
end
redis.call('SET', KEYS[#KEYS], string.format('%.0f %.0f', now, grace_until))
return {
  now, upto(KEYS[3], now, 0), now < grace_until and {} or upto(KEYS[2], now, ARGV[4]),
  upto(KEYS[4], now - tonumber(ARGV[2]), ARGV[5]), grace_until, first(KEYS[2]), first(KEYS[3]),
}
