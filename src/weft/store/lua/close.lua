-- Let an execution go and leave a mark. (state, closed)
-- ARGV: generation, epoch; as in closed.
-- Reply: an answer; whether the execution was there. UNKNOWN: no life of the store has begun.
local generation, epoch = number(), number()
read_marks()
local answer, is_there = let_go(open_with(1, 1, 0), generation, epoch)
write_closed()
flush()
return {answer, is_there and 1 or 0}
