-- Return the id of this incarnation of the store; a new one begins with nothing.
-- KEYS: as in guard, and of its own: server, incarnation.
-- ARGV: the id of a new incarnation; the incarnation of the database (empty where none is known): id, line, started,
--   position, and when it began.
-- Reply: the id.
local incarnation_id = redis.call('GET', KEYS[INCARNATION_KEY])
if not incarnation_id then
  incarnation_id = ARGV[1]
  redis.call('UNLINK', unpack(KEYS, LEASES_KEY, UNSETTLED_KEY))
  for index = LEASES_KEY, ACTIVE_KEY do
    redis.call('ZADD', KEYS[index], '+inf', SENTINEL)
  end
  -- Where all was lost, so was the name of the server: without it this incarnation would end with the next connection.
  redis.call('SET', KEYS[OWN_KEY], string.match(redis.call('INFO', 'server'), RUN_ID_PATTERN))
  if ARGV[2] ~= EMPTY and redis.call('EXISTS', KEYS[OWN_KEY + 1]) == 0 then
    redis.call('HSET', KEYS[OWN_KEY + 1], DATABASE_ID, ARGV[2], DATABASE_LINE, ARGV[3], DATABASE_STARTED, ARGV[4],
      DATABASE_POSITION, ARGV[5], DATABASE_BEGAN, ARGV[6])
  end
  redis.call('SET', KEYS[INCARNATION_KEY], incarnation_id)
end
return incarnation_id
