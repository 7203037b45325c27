-- Give the word for this life of the store; a new life begins with nothing.
-- KEYS: token, leases, timers, free, active, unsettled, server, incarnation.
-- ARGV: a word for a new life; the incarnation of the database ('' where none is known): id, line, started, position, and
--   when it began.
-- Reply: the word.
local token = redis.call('GET', KEYS[1])
if not token then
  token = ARGV[1]
  redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6])
  -- A mark in each sorted set: where it is missing, the set was lost.
  for index = 2, 5 do
    redis.call('ZADD', KEYS[index], '+inf', '!')
  end
  -- Where all was lost, so was the name of the server: without it this life would end with the next connection.
  redis.call('SET', KEYS[7], string.match(redis.call('INFO', 'server'), 'run_id:(%x+)'))
  if ARGV[2] ~= '' and redis.call('EXISTS', KEYS[8]) == 0 then
    redis.call('HSET', KEYS[8], 'id', ARGV[2], 'line', ARGV[3], 'started', ARGV[4], 'position', ARGV[5], 'began', ARGV[6])
  end
  redis.call('SET', KEYS[1], token)
end
return token
