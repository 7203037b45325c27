-- Correct the number of unsettled nodes, unless it has changed while they were counted.
-- KEYS: unsettled.  ARGV: the number when the count began (empty: none); what was counted.  Reply: 1 where it was corrected.
if (redis.call('GET', KEYS[1]) or EMPTY) ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2])
return 1
