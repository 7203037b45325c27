-- Remove a ticket from the wait queue, or give up a release that will not be used.
-- ARGV, after those of the bucket: 4 ticket.
redis.call('ZREM', KEYS[2], ARGV[4])
redis.call('ZREM', KEYS[3], ARGV[4])
redis.call('HDEL', KEYS[4], ARGV[4])
return 1
