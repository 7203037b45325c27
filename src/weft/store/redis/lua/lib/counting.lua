-- How many nodes of all executions are not settled. (guard)
local unsettled_by = 0

-- The first that is written: a server without memory refuses it, before anything is taken away.
local function write_count()
  if unsettled_by ~= 0 then
    call('INCRBY', KEYS[UNSETTLED_KEY], unsettled_by)
  end
end

-- Return the numbers in the field of an execution's row, and where the rest begins: seq, deadline, unsettled.
local function numbers_of(row)
  local seq, deadline, unsettled, from = match(row or poison(), ROW_PATTERN)
  if not seq then
    poison()
  end
  return seq, deadline, unsettled, from
end
