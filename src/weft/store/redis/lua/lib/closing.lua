-- What lets executions go and leaves marks. (guard, counting)
-- ARGV: for how many seconds a mark stays, and for how many where no builder can be under way.
local keep_mark, keep_plain_mark = number(), number()
local closed, closed_ids, deadlines = {}, {}, {}

-- Let an execution go, unless it is of a later epoch here, and leave a mark; return an answer.
local function let_go(key, id, generation, epoch)
  if token == EMPTY then
    return UNKNOWN
  end
  local got = redis.pcall('HMGET', key, MARK, ROW)
  -- Whatever else was there goes, too.
  local mark, row = not got.err and got[1] or EMPTY, not got.err and got[2] or EMPTY
  local known, incarnation, known_epoch, state = match(mark, MARK_PATTERN)
  if incarnation ~= token then
    state = nil
  end
  local is_live = state and state ~= CLOSED and state ~= INSTALLING
  if state and state ~= CLOSED and tonumber(known_epoch) > tonumber(epoch) then
    return REFUSED
  end
  closed_ids[#closed_ids + 1] = id
  if state == CLOSED then
    if tonumber(generation) <= tonumber(known) and tonumber(epoch) <= tonumber(known_epoch) then
      return WAS_GONE
    end
    generation, epoch = math.max(generation, known), math.max(epoch, known_epoch)
  end
  -- The mark refuses builders that come late. That of the first epoch is refused by the time anyway: if it is what was
  -- here, nobody is left to come, and the mark only tells those who still run something of it.
  local keep = is_live and tonumber(epoch) == 1 and keep_plain_mark or keep_mark
  closed[#closed + 1] = {key, generation .. COLON .. token .. COLON .. epoch .. COLON .. CLOSED, keep}
  local _, deadline, unsettled = match(row, ROW_PATTERN)
  if deadline and deadline ~= NO_TIME then
    deadlines[#deadlines + 1] = COLON .. id
  end
  if is_live then
    unsettled_by = unsettled_by - tonumber(unsettled or 0)
  end
  return (is_live or state == INSTALLING) and YES or WAS_GONE
end

-- No list keeps an execution that has ended, also of one whose hash was lost alone. What its nodes have left in leases is
-- taken away when a worker asks for the attempt and is refused; else, as in timers, by the sweep, when it has run out.
local function write_closed()
  if not closed_ids[1] then
    return
  end
  for index = 1, #closed do
    local key = closed[index][1]
    call('UNLINK', key)
    call('HSET', key, MARK, closed[index][2])
    call('EXPIRE', key, closed[index][3])
  end
  call('ZREM', KEYS[ACTIVE_KEY], unpack(closed_ids))
  call('ZREM', KEYS[FREE_KEY], unpack(closed_ids))
  if deadlines[1] then
    call('ZREM', KEYS[TIMERS_KEY], unpack(deadlines))
  end
end
