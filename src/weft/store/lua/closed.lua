-- What lets executions go and leaves marks. (after state)
-- ARGV: for how many seconds a mark stays, and for how many where no builder can be under way.
local keep_mark, keep_plain_mark
local closed = {}

local function read_marks()
  keep_mark, keep_plain_mark = number(), number()
end

-- Let an execution go, unless it is of a later epoch here; say whether it was there.
local function let_go(ex, generation, epoch)
  if not token then
    return UNKNOWN, false
  end
  local is_there = ex.live or ex[STATE] == 'i'
  if is_there and ex[EPOCH] > epoch then
    return REFUSED, true
  end
  -- Also of one whose hash was lost alone: no list keeps an execution that has ended.
  with_free[ex.id] = false
  closed[#closed + 1] = ex.id
  -- The mark refuses builders that come late. That of the first epoch is refused by the time anyway: if it is what was
  -- here, nobody is left to come, and the mark only tells those who still run something of it.
  local keep = ex.live and epoch == 1 and keep_plain_mark or keep_mark
  if is_there then
    for piece = ex[PLACES_TAKEN[2]], ex[PLACES_TAKEN[3]] do
      local names = names_in(read(ex, 'P' .. piece))
      for index = 1, #names do
        leases[member(ex, names[index])] = false
      end
    end
    if ex.live then
      unsettled_by = unsettled_by - ex[UNSETTLED]
    end
    if ex[DEADLINE] ~= 0 then
      timers[member(ex, '')] = false
    end
  elseif ex[STATE] == 'c' then
    if generation <= ex[GENERATION] and epoch <= ex[EPOCH] then
      return YES, false
    end
    generation, epoch = math.max(generation, ex[GENERATION]), math.max(epoch, ex[EPOCH])
  end
  local mark = pack('<c1I4I4', 'c', generation, epoch)
  call('UNLINK', ex.key)
  call('HSET', ex.key, '!', mark .. string.rep('\0', META_BYTES - #mark) .. token)
  call('EXPIRE', ex.key, keep)
  -- Nothing more is written of it.
  ex[STATE], ex[GENERATION], ex[EPOCH] = 'c', generation, epoch
  ex.live, ex.dirty, ex.changed = false, false, {}
  return YES, is_there
end

-- Before flush().
local function write_closed()
  call_in_parts('ZREM', KEYS[5], closed)
end
