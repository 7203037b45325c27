-- The token bucket of a tag, for the scripts behind this file.
-- KEYS: 1 bucket: a hash of when it is full again (full_at in microseconds, and nanoseconds on top) and of the
--       last position given in the wait queue; 2 the wait queue: a sorted set of tickets by position; 3 released: a sorted set of
--       tickets by when their release ends; 4 a hash of the positions that the released had.
-- ARGV: 1 now in microseconds, "0": the server's; 2 nanoseconds per token; 3 burst; then each script's own.
--
-- Times in nanoseconds are too large for a number of Lua (2^53); differences of them are not. Divisions are
-- made exact by taking the remainder off first.
local now = tonumber(ARGV[1])
if now == 0 then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local interval = tonumber(ARGV[2])
local burst = tonumber(ARGV[3])

local function divided_up(number, by)
  local rest = number % by
  return (number - rest) / by + (rest > 0 and 1 or 0)
end

local function as_text(number)
  return string.format('%.0f', number)
end

-- Set that the bucket is full in so many nanoseconds.
local function fill_in(nanoseconds)
  local part = nanoseconds % 1000
  local full_at = now + (nanoseconds - part) / 1000
  redis.call('HSET', KEYS[1], 'full_at', as_text(full_at), 'nanoseconds', as_text(part))
end

-- Nanoseconds until the bucket is full. More than an empty one takes is a clock that was set back: it is empty.
local function missing()
  local full = redis.call('HMGET', KEYS[1], 'full_at', 'nanoseconds')
  if not full[1] then
    return 0
  end
  local nanoseconds = (tonumber(full[1]) - now) * 1000 + tonumber(full[2])
  if nanoseconds > burst * interval then
    nanoseconds = burst * interval
    fill_in(nanoseconds)
  end
  return math.max(0, nanoseconds)
end

local function tokens()
  return burst - divided_up(missing(), interval)
end
