-- A piece of the line, and what says when each token in it is there.
-- ARGV, after those of the bucket: 4 the first place to tell, from 0; 5 how many.
-- Returns now, the nanoseconds until the bucket is full, how many were let go, how many wait; then the tickets.
local first = tonumber(ARGV[4])
local answer = redis.call('ZRANGE', KEYS[2], first, first + tonumber(ARGV[5]) - 1)
table.insert(answer, 1, redis.call('ZCARD', KEYS[2]))
table.insert(answer, 1, redis.call('ZCARD', KEYS[3]))
table.insert(answer, 1, as_text(missing()))
table.insert(answer, 1, as_text(now))
return answer
