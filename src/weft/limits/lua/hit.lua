-- Count a call against a sliding window: of the last calls that were allowed, as many are kept as are allowed
-- in one window, so that the first of them says whether another is.
-- KEYS: the times of those calls, a list.
-- ARGV: 1 now in microseconds, "0": the server's; 2 how many are allowed; 3 the window, in microseconds.
-- Returns the microseconds to wait, "0": allowed.
local now = tonumber(ARGV[1])
if now == 0 then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local limit, window = tonumber(ARGV[2]), tonumber(ARGV[3])
local first = redis.call('LINDEX', KEYS[1], -limit)
if first then
  local wait = tonumber(first) + window - now
  if wait > window then
    -- The clock was set back: who called then cannot be known, and must not be kept out until it is then.
    redis.call('DEL', KEYS[1])
  elseif wait > 0 then
    return string.format('%.0f', wait)
  end
end
redis.call('RPUSH', KEYS[1], string.format('%.0f', now))
redis.call('LTRIM', KEYS[1], -limit, -1)
redis.call('PEXPIRE', KEYS[1], math.ceil(window / 1000))
return '0'
