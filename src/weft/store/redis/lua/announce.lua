-- Note that a worker is there.
-- KEYS: workers, beats.  ARGV: now (0: the server's); id, the worker as it describes itself.
local now = ARGV[1]
if tonumber(now) == 0 then
  local time = redis.call('TIME')
  now = string.format(WHOLE, time[1] * 1000000 + time[2])
end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
redis.call('ZADD', KEYS[2], now, ARGV[2])
return 1
