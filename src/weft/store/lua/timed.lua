-- List what time has brought about, and change nothing: `due` does, with the executions' hashes at hand.
-- KEYS: token, leases, timers, free, active, unsettled, unrecorded.
-- ARGV: now (0: the server's); how long free nodes may wait, in microseconds; how many to list of each; how many leases and
--   how many executions with free nodes to pass over.
-- Reply: now; members of timers, of leases, ids with free nodes; the next lease and timer ('' none).
local now = tonumber(ARGV[1])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- Each sorted set has held a mark since this life began. Without it the set was lost, and nobody would ever wait for what
-- was in it: then this life is over.
if redis.call('EXISTS', KEYS[1]) == 1 then
  for index = 2, 7 do
    if index ~= 6 and not redis.call('ZSCORE', KEYS[index], '!') then
      redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7])
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
return {
  now, upto(KEYS[3], now, 0), upto(KEYS[2], now, ARGV[4]), upto(KEYS[4], now - tonumber(ARGV[2]), ARGV[5]),
  first(KEYS[2]), first(KEYS[3]),
}
