-- List the outcomes that the journal has not, and hold nodes: the journal alone settles them. (state)
-- ARGV: whether to hold all; number of nodes to hold, these.
-- Reply: an answer; if it is YES: epoch, and the nodes, in the order in which they settled.
local ex = open_with(1, 1, 0)
if not ex.live then
  if ex[STATE] ~= 'i' then
    with_unrecorded[ex.id] = false
    flush()
  end
  return {missing(ex, 0, 0)}
end
if argument() == '1' and ex[MODE] < 2 then
  ex[MODE] = ex[MODE] + 2
  ex.dirty = true
end
for _ = 1, number() do
  local name, held = argument(), read(ex, 'H') or ','
  if not find(held, ',' .. name .. ',', 1, true) then
    change(ex, 'H', held .. name .. ',')
  end
end
flush()
local reply = {YES, ex[EPOCH]}
for piece = ex[NOT_RECORDED[2]], ex[NOT_RECORDED[3]] do
  local names = ex[UNRECORDED] > 0 and names_in(read(ex, 'U' .. piece)) or {}
  for index = 1, #names do
    reply[#reply + 1] = names[index]
  end
end
return reply
