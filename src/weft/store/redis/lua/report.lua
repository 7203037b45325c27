-- Append results to the result stream and lengthen the leases of their attempts. The script reads no execution: the lease of an
-- attempt that is over is not there, and whether a result counts is for the journal to say.
-- KEYS: as in guard, and of its own: results.
-- ARGV: now in microseconds (0: the server's time); no executions; how long a result may be on its way; the results, as one
--   message; the lease of each attempt.  Reply: nothing.
local now = tonumber(ARGV[1])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local until_when = string.format(WHOLE, now + ARGV[3])
local leases = {}
for index = 5, #ARGV do
  leases[2 * index - 9], leases[2 * index - 8] = until_when, ARGV[index]
end
redis.call('XADD', KEYS[OWN_KEY], '*', MESSAGE, ARGV[4])
redis.call('ZADD', KEYS[LEASES_KEY], 'XX', 'GT', unpack(leases))
