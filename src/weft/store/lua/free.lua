-- Answer with the free nodes of executions. (state, given)
-- ARGV: for each execution the number of fields to read, and these.
-- Reply, for each execution: an answer; if it is YES: generation, row, digest, input (nil: elsewhere), free nodes.
open_all()
local reply = {}
for index = 1, execution_count do
  local ex = executions[index]
  if ex.live then
    reply[#reply + 1] = YES
    reply[#reply + 1] = ex[GENERATION]
    reply[#reply + 1] = read(ex, 'x')
    reply[#reply + 1] = read(ex, 'h')
    reply[#reply + 1] = read(ex, 'i')
    give(ex, reply)
  else
    reply[#reply + 1] = missing(ex, 0, 0)
  end
end
return reply
