-- Moves of attempts that workers have in hand, or take: each only if the attempt is the current one. (guard)
-- ARGV, of each execution: id, generation, number of attempts; for each `width` arguments: name, attempt, the script's own.
-- No node is in a call twice.
-- Reply: an answer for each attempt.
local reply, leases, leases_gone = {}, {}, {}
local fields, set, filled = {MARK, IN_HAND}, {}, 0
-- How many attempts of the execution at hand workers have.
local in_hand

local function lease(name, id, lease_until)
  local last = #leases
  leases[last + 1], leases[last + 2] = lease_until, name .. COLON .. id
end

-- Where the nonce begins in a field of a node that is running or reported, if it is this nonce: its length is in front.
local function holder_in(record, from, nonce)
  local at = match(record, HOLDER_PATTERN, from)
  return sub(record, at or poison(), at + #nonce - 1) == nonce and at
end

local function step(key, move, width, id, generation, from, count)
  for item = 0, count - 1 do
    fields[item + 3] = ARGV[from + width * item]
  end
  local got = fetch(key, fields, count + 2)
  local refused, state = refusal(got[1], generation)
  if refused then
    -- The close names no nodes: what a closed execution had in flight loses its leases here, when a worker asks for it.
    for item = 3, refused == REFUSED and sub(got[1], -1) == CLOSED and count + 2 or 0 do
      leases_gone[#leases_gone + 1] = fields[item] .. COLON .. id
    end
    return refused
  end
  local before = count_of(got[2])
  in_hand, filled = before, 0
  for item = 0, count - 1 do
    local at, record = from + width * item, got[item + 3]
    local answer, changed = REFUSED, nil
    if record then
      answer, changed = move(record, at, state, id)
    end
    if changed then
      set[filled + 1], set[filled + 2] = ARGV[at], changed
      filled = filled + 2
    end
    reply[#reply + 1] = answer
  end
  if in_hand ~= before then
    set[filled + 1], set[filled + 2] = IN_HAND, in_hand
    filled = filled + 2
  end
  if filled > 0 then
    call('HSET', key, unpack(set, 1, filled))
  end
end

-- Let `move` look at each attempt, given its field, where its arguments begin, and the state and id of its execution. It
-- returns an answer, and the node's new field where that changes.
local function answers(width, move)
  for place = 1, execution_count do
    local id, generation, count = argument(), argument(), number()
    local from, given, leased = cursor, #reply, #leases
    cursor = from + width * count
    local refused = guarded(place, step, move, width, id, generation, from, count)
    if refused then
      for item = 1, count do
        reply[given + item] = refused
      end
      for item = #leases, leased + 1, -1 do
        leases[item] = nil
      end
    end
  end
  if leases[1] then
    call('ZADD', KEYS[LEASES_KEY], unpack(leases))
  end
  if leases_gone[1] then
    call('ZREM', KEYS[LEASES_KEY], unpack(leases_gone))
  end
  return reply
end

-- Compare a node's field with a phase and an attempt: return where what is kept begins, or nothing. What no release of weft
-- has written is poison.
local function kept_from(record, phase, attempt)
  local beginning = phase .. attempt .. COLON
  if sub(record, 1, #beginning) == beginning then
    return #beginning + 1
  end
  parsed(record)
end
