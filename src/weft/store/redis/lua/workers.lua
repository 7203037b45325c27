-- Show the workers, and forget those that were not heard of for very long.
-- KEYS: workers, beats.  ARGV: now (0: the server's); how long a silent one is shown, in microseconds; how many to forget.
-- Reply: now; id and time of each; id and description of each.
local now = tonumber(ARGV[1])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local before = string.format(BELOW, now - tonumber(ARGV[2]))
local gone = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', before, 'LIMIT', 0, ARGV[3])
if gone[1] then
  redis.call('ZREM', KEYS[2], unpack(gone))
  redis.call('HDEL', KEYS[1], unpack(gone))
end
return {now, redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES'), redis.call('HGETALL', KEYS[1])}
