-- Take a token for a start that happens now, unless it is there for another ticket that is released.
-- ARGV, after those of the bucket: 4 ticket.  Returns 1, or 0: there is none.
redis.call('ZREM', KEYS[3], ARGV[4])
redis.call('HDEL', KEYS[4], ARGV[4])
if tokens() - redis.call('ZCARD', KEYS[3]) < 1 then
  return 0
end
fill_in(missing() + interval)
redis.call('ZREM', KEYS[2], ARGV[4])
return 1
