-- Show an execution and some of its nodes. (state)
-- ARGV: the number of fields to read, and these.
-- Reply: nothing where it is not there; else state, places taken, places, digest; then a record for each
--   field, S for a settled node, nil for one that nothing has happened to.
local fields_from = cursor + 1
local fields_to = cursor + tonumber(ARGV[cursor])
local ex = open_with(1, fields_from, fields_to)
if not ex.live then
  return {}
end
local reply = {ex[STATE], ex[PLACES], ex[WINDOW], call('HGET', ex.key, 'h')}
for index = fields_from, fields_to do
  local value = ex.value[ARGV[index]]
  reply[#reply + 1] = value and byte(value) == SETTLED and 'S' or value
end
return reply
