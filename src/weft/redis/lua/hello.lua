-- A server that was restarted or replaced may have lost what it answered for: its state counts as lost.
-- What an execution holds names the token it was installed under, so dropping the token drops them all. Their hashes go
-- too: nobody would come for that of an execution which has ended since.
-- KEYS: server, token, active, leases, timers, free, unsettled.
-- ARGV: the server's run id; how the key of an execution's hash begins.
-- Returns 1 where there was something to drop, else 0: a new server is no loss.
local server = redis.call('GET', KEYS[1])
if server == ARGV[1] then
  return 0
end
local ids = redis.call('ZRANGE', KEYS[3], 0, -1)
for index = 1, #ids do
  redis.call('UNLINK', ARGV[2] .. ids[index])
end
local dropped = redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7])
redis.call('SET', KEYS[1], ARGV[1])
return (server or dropped > 0) and 1 or 0
