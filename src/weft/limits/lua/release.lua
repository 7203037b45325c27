-- Release as many tickets of the wait queue as there are tokens that no released ticket waits for.
-- ARGV, after those of the bucket: 4 how long a release lasts, in microseconds; 5 how many at most in one call.
-- Returns when to look again, "" for never, and then the tickets.
if redis.call('ZCARD', KEYS[2]) == 0 and redis.call('ZCARD', KEYS[3]) == 0 then
  return {''}
end
local lasts, most = tonumber(ARGV[4]), tonumber(ARGV[5])

-- A release that led to no start: its ticket goes back to its position, before all that wait. A release that
-- would last longer than any does was made before the clock was set back.
local function take_back(from, to)
  for _, ticket in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], from, to, 'LIMIT', 0, most)) do
    redis.call('ZADD', KEYS[2], redis.call('HGET', KEYS[4], ticket) or 0, ticket)
    redis.call('ZREM', KEYS[3], ticket)
    redis.call('HDEL', KEYS[4], ticket)
  end
end
take_back('-inf', as_text(now))
take_back('(' .. as_text(now + lasts), '+inf')

local answer = {''}
local released = redis.call('ZCARD', KEYS[3])
local room = math.min(tokens() - released, most)
if room > 0 then
  local head = redis.call('ZRANGE', KEYS[2], 0, room - 1, 'WITHSCORES')
  for index = 1, #head, 2 do
    local ticket = head[index]
    redis.call('ZADD', KEYS[3], as_text(now + lasts), ticket)
    redis.call('HSET', KEYS[4], ticket, head[index + 1])
    redis.call('ZREM', KEYS[2], ticket)
    answer[#answer + 1] = ticket
    released = released + 1
  end
end

local next_at = nil
local first = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
if first[2] then
  next_at = tonumber(first[2])
end
if redis.call('ZCARD', KEYS[2]) > 0 then
  -- Where all who may be are let go, the next can be when one of them has started. That happens elsewhere, and
  -- is not said here.
  local wait = math.max(20000, divided_up(interval, 1000))
  if released < burst then
    wait = divided_up(math.max(0, missing() - (burst - released - 1) * interval), 1000)
  end
  next_at = math.min(next_at or now + wait, now + wait)
end
if next_at then
  answer[1] = as_text(next_at)
end
return answer
