-- What the scripts build on that every attempt needs: each reads the record of its node and the numbers of its
-- execution, and writes what it changes there. All else that there is of an execution (state) they leave alone.
--
-- KEYS, ARGV: as in state. The hash and its records are described there; these scripts change single bytes of what they
--   do not take apart.
local YES, REFUSED, UNKNOWN, PAUSED = 1, 2, 4, 6
local META_BYTES, RUNNING_AT, NODE_BYTES = 81, 26, 22

local pack, unpacked, sub, call = struct.pack, struct.unpack, string.sub, redis.call

local now = tonumber(ARGV[1])
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local token = call('GET', KEYS[1])
local count = tonumber(ARGV[3])
local hashes = #KEYS - count

-- Find exactly this attempt, unsettled: its phase and record, the execution's state and numbers. Else an answer.
local function find_attempt(key, name, generation, attempt)
  local got = call('HMGET', key, '!', name)
  local meta, record = got[1], got[2]
  if not meta or sub(meta, META_BYTES + 1) ~= token then
    return UNKNOWN
  end
  local state, current = unpacked('<c1I4', meta)
  if state == 'i' or generation > current then
    return UNKNOWN
  elseif state == 'c' or not record or generation < current then
    return REFUSED
  end
  -- An outcome begins with a letter that is no phase, and is refused by that.
  local phase, _, number = unpacked('<c1BI4', record)
  if number ~= attempt then
    return REFUSED
  end
  return nil, phase, record, state, meta
end

-- Who has it in hand, with the length of the nonce in front, as it comes and as it lies in the record.
local function is_held_by(record, holder)
  local last = 4 + unpacked('<I4', holder)
  return sub(record, NODE_BYTES + 25, NODE_BYTES + 24 + last) == sub(holder, 1, last)
end

local function one_more_runs(meta)
  local running = unpacked('<I4', meta, RUNNING_AT)
  return sub(meta, 1, RUNNING_AT - 1) .. pack('<I4', running + 1) .. sub(meta, RUNNING_AT + 4)
end
