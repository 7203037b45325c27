-- Append results to the result stream and lengthen the leases of their attempts. The script reads no execution: the lease of an
-- attempt that is over is not there, and whether a result counts is for the journal to say.
-- KEYS: results, leases.
-- ARGV: now in microseconds (0: the server's time); how long a result may be on its way; the results, as one message; the
--   lease of each attempt.  Reply: nothing.
local now = tonumber(ARGV[1])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local until_when = string.format(WHOLE, now + ARGV[2])
local leases = {}
for index = 4, #ARGV do
  leases[2 * index - 7], leases[2 * index - 6] = until_when, ARGV[index]
end
redis.call('XADD', KEYS[1], '*', MESSAGE, ARGV[3])
redis.call('ZADD', KEYS[2], 'XX', 'GT', unpack(leases))
