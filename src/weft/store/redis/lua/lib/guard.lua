-- What every script about executions begins with: its time, its incarnation, and the guard in front of each execution.
--
-- KEYS: token, leases, timers, free, active, unsettled; then the script's own; last a hash for each execution.
-- ARGV: now in microseconds (0: the server's time); the number of executions; then the script's own.
--
-- The names in capitals are made by layout.py. An execution that is missing, that was installed in another incarnation
-- of the store, or whose hash no release of weft has written is UNKNOWN, never "nothing left". The last is dropped, too,
-- and harms no other execution of the call: a script reads and judges each, and only then writes what it has judged.
--
-- Most of the time of a script goes into strings and tables that live as long as it does. So what every node goes through
-- is compared in place and not taken apart, and makes no closure.
local call, match, sub = redis.call, string.match, string.sub

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
local token = call('GET', KEYS[TOKEN_KEY]) or EMPTY
local execution_count = tonumber(ARGV[2])
local hashes = #KEYS - execution_count

local function poison()
  error(POISON, 0)
end

-- Return what `step` does with the key of an execution and these values; drop the execution where its hash is poison, and
-- return UNKNOWN.
local function guarded(place, step, ...)
  local key = KEYS[hashes + place]
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
  local got = redis.pcall('HMGET', key, unpack(fields, 1, count or #fields))
  if got.err then
    if sub(got.err, 1, #'WRONGTYPE') == 'WRONGTYPE' then
      poison()
    end
    error(got.err, 0)
  end
  return got
end

-- The mark of this incarnation up to the epoch, by generation.
local beginnings = {}

-- Compare what a caller knows of an execution with its mark: nil and the execution's state where it is the same, else the
-- answer. Without an epoch only the generation is compared.
local function refusal(mark, generation, epoch)
  if not mark then
    return UNKNOWN
  end
  local beginning = beginnings[generation]
  if not beginning then
    beginning = generation .. COLON .. token .. COLON
    beginnings[generation] = beginning
  end
  local state = sub(mark, -1)
  if state ~= CLOSED and state ~= INSTALLING then
    if epoch and sub(mark, 1, -2) == beginning .. epoch .. COLON or
      not epoch and sub(mark, 1, #beginning) == beginning then
      return nil, state
    end
  end
  local known, incarnation, known_epoch, letter = match(mark, MARK_PATTERN)
  if not known then
    poison()
  elseif incarnation ~= token or letter == INSTALLING then
    return UNKNOWN
  end
  -- A later generation or epoch than the store's is unknown to it, an earlier one is over.
  if tonumber(generation) > tonumber(known) or epoch and tonumber(epoch) > tonumber(known_epoch) then
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

local function count_of(text)
  return tonumber(text or 0) or poison()
end
