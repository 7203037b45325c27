-- Let an execution go and leave a mark. (state)
-- ARGV: generation, epoch; for how many seconds the mark stays, and for how many where no builder can be under way.
-- Reply: an answer; whether the execution was there. UNKNOWN: no life of the store has begun.
local generation, epoch, keep_mark, keep_plain_mark = number(), number(), number(), number()
local ex = open_with(1, 1, 0)
if not token then
  return {UNKNOWN, 0}
end
local is_there = ex.live or ex[STATE] == 'i'
if is_there and ex[EPOCH] > epoch then
  return {REFUSED, 1}
end
if is_there then
  for piece = ex[PLACES_TAKEN[2]], ex[PLACES_TAKEN[3]] do
    local names = names_in(read(ex, 'P' .. piece))
    for index = 1, #names do
      leases[member(ex, names[index])] = false
    end
  end
  if ex.live then
    unsettled_by = -ex[UNSETTLED]
  end
  if ex[UNRECORDED] > 0 then
    with_unrecorded[ex.id] = false
  end
  if ex[DEADLINE] ~= 0 then
    timers[member(ex, '')] = false
  end
elseif ex[STATE] == 'c' then
  if generation <= ex[GENERATION] and epoch <= ex[EPOCH] then
    return {YES, 0}
  end
  generation, epoch = math.max(generation, ex[GENERATION]), math.max(epoch, ex[EPOCH])
end
-- The mark refuses builders that come late. That of the first epoch is refused by the time anyway: if it is what was
-- here, nobody is left to come, and the mark only tells those who still run something of it.
if ex.live and epoch == 1 then
  keep_mark = keep_plain_mark
end
local mark = pack(META, 'c', generation, epoch, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) .. token
call('UNLINK', ex.key)
call('HSET', ex.key, '!', mark)
call('EXPIRE', ex.key, keep_mark)
if is_there then
  call('ZREM', KEYS[4], ex.id)
  call('ZREM', KEYS[5], ex.id)
end
flush()
return {YES, is_there and 1 or 0}
