-- A piece of the wait queue, and what says when the token of each ticket in it is there.
-- ARGV, after those of the bucket: 4 the first position to tell, from 0; 5 how many.
-- Returns now, the nanoseconds until the bucket is full, how many are released, how many wait; then the tickets.
local first = tonumber(ARGV[4])
local answer = redis.call('ZRANGE', KEYS[2], first, first + tonumber(ARGV[5]) - 1)
table.insert(answer, 1, redis.call('ZCARD', KEYS[2]))
table.insert(answer, 1, redis.call('ZCARD', KEYS[3]))
table.insert(answer, 1, as_text(missing()))
table.insert(answer, 1, as_text(now))
return answer
