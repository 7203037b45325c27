-- Let an execution go and leave a mark. (guard, counting, closing)
-- ARGV: as in closing; id, generation, epoch.
-- Reply: an answer; WAS_GONE where it was not there, UNKNOWN where no incarnation of the store has begun.
local answer = let_go(KEYS[hashes + 1], argument(), argument(), argument())
write_count()
write_closed()
return answer
