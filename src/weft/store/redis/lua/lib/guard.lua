-- What every script about executions begins with: its time, its incarnation, and the guard in front of each execution.
--
-- KEYS: incarnation_id, leases, timers, free, active, unsettled, lanes; then the script's own; last a hash for each execution.
-- ARGV: now in microseconds (0: the server's time); the number of executions; then the script's own.
--
-- The names in capitals are made by layout.py. An execution that is missing, that was installed in another incarnation
-- of the store, or whose hash no release of weft has written is UNKNOWN, never "nothing left". The last is dropped, too,
-- and harms no other execution of the call: a script reads and judges each, and only then writes what it has judged.
--
-- Most of the time of a script goes into strings, tables and arguments. So what is the same for most executions of a call
-- is one argument, taken apart once (fences, counts, and in `apply` much more), and a number goes out as text: Redis and Lua
-- take long to make one of the other.
local call, match, sub, tonumber = redis.call, string.match, string.sub, tonumber

local cursor = 3
local function argument()
  cursor = cursor + 1
  return ARGV[cursor - 1]
end

local function number()
  cursor = cursor + 1
  return tonumber(ARGV[cursor - 1])
end

local now = tonumber(ARGV[1])
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
-- A number becomes text for every command it goes into, and .. makes 1.8e+15 of a time.
local now_text = string.format(WHOLE, now)
local incarnation_id = call('GET', KEYS[INCARNATION_KEY]) or EMPTY
local execution_count = tonumber(ARGV[2])
local hashes = #KEYS - execution_count
-- Where the id begins in the key of an execution's hash.
local id_from = #KEYS[INCARNATION_KEY] + ID_FROM

local function id_of(key)
  return sub(key, id_from)
end

local function poison()
  error(POISON, 0)
end

-- Return what `step` does with the key of an execution and these values; drop the execution where its hash is poison, and
-- return UNKNOWN.
local function guarded(index, step, ...)
  local key = KEYS[hashes + index]
  local fine, answer = pcall(step, key, ...)
  if fine then
    return answer
  elseif answer ~= POISON then
    error(answer, 0)
  end
  call('UNLINK', key)
  return UNKNOWN
end

-- Read so many fields of an execution.
local function fetch(key, fields, count)
  local got = redis.pcall('HMGET', key, unpack(fields, 1, count))
  if got.err then
    if sub(got.err, 1, #'WRONGTYPE') == 'WRONGTYPE' then
      poison()
    end
    error(got.err, 0)
  end
  return got
end

local fences = {}

-- Take a fence apart; `is_here`: it is of this incarnation, and its execution is installed or closed.
local function fence_of(text)
  local fence = fences[text]
  if not fence then
    local generation, incarnation, epoch, state = match(text, FENCE_PATTERN)
    fence = {
      generation = generation or poison(), epoch = epoch, state = state,
      is_here = incarnation == incarnation_id and state ~= INSTALLING, is_live = state ~= CLOSED,
    }
    fences[text] = fence
  end
  return fence
end

-- Compare what a caller knows of an execution with its fence: nil and the execution's state where it is the same, else the
-- answer. Without a generation or an epoch, any will do.
local function refusal(text, generation, epoch)
  local fence = text and fence_of(text)
  if not fence or not fence.is_here then
    return UNKNOWN
  end
  generation, epoch = generation or fence.generation, epoch or fence.epoch
  if fence.is_live and generation == fence.generation and epoch == fence.epoch then
    return nil, fence.state
  end
  -- A later generation or epoch than the store's is unknown to it, an earlier one is over.
  if tonumber(generation) > tonumber(fence.generation) or tonumber(epoch) > tonumber(fence.epoch) then
    return UNKNOWN
  end
  return REFUSED
end

-- Take a node's field apart: phase, attempt, what is kept, the rest.
local function parsed(record)
  local phase, attempt, kept, rest = match(record, NODE_PATTERN)
  if phase then
    return phase, attempt, kept, rest
  elseif sub(record, 1, 1) == SETTLED then
    return SETTLED
  elseif match(record, FIRST_NUMBER) then
    return WAITING
  end
  poison()
end

local numbers, texts = {}, {}

local function count_of(text)
  local count = numbers[text or NO_TIME]
  if not count then
    count = tonumber(text or NO_TIME) or poison()
    numbers[text or NO_TIME] = count
  end
  return count
end

local function text_of(count)
  local text = texts[count]
  if not text then
    text = string.format(WHOLE, count)
    texts[count] = text
  end
  return text
end
