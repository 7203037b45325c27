-- Append a ticket to the wait queue; one that is in it, or is released, stays where it is.
-- ARGV, after those of the bucket: 4 ticket.
if not redis.call('ZSCORE', KEYS[2], ARGV[4]) and not redis.call('ZSCORE', KEYS[3], ARGV[4]) then
  redis.call('ZADD', KEYS[2], redis.call('HINCRBY', KEYS[1], 'place', 1), ARGV[4])
end
return 1
