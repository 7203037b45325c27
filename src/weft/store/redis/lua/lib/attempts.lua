-- Moves of attempts that workers have in hand, or take: each only if the attempt is the current one. (guard)
-- ARGV, of each execution: generation, number of attempts; for each: name, attempt with a colon behind it, holder. No node is
-- in a call twice. The holder is `:worker:nonce:length of the nonce`; of an attempt that was started before:
-- `queued at:started at:worker:nonce:length of the nonce`.
-- Reply: an answer for each attempt.
local reply, replies, leases, leased, leases_gone = {}, 0, {}, 0, {}
local fields, set = {FENCE, COUNTS}, {}
-- Of the execution at hand: its key, and how many of its nodes are in flight, in hand and delayed.
local hash, counts

-- Return the lease of the attempt whose arguments begin here.
local function lease_of(key, at)
  return ARGV[at] .. COLON .. ARGV[at + 1] .. id_of(key)
end

local function lease(at, lease_until)
  leases[leased + 1], leases[leased + 2] = lease_until, lease_of(hash, at)
  leased = leased + 2
end

-- True if the field of a running node has the nonce of this holder: both end with it and its length.
local function is_held(record, holder)
  if sub(record, -#holder) == holder then
    return true
  end
  local length = match(holder, LAST_NUMBER)
  local nonce = sub(holder, -#length - 2 - length)
  return sub(record, -#nonce) == nonce
end

local function step(key, move, generation, from, count)
  for item = 1, count do
    fields[item + 2] = ARGV[from + 3 * item - 3]
  end
  local got = fetch(key, fields, count + 2)
  local refused, state = refusal(got[1], generation)
  if refused then
    -- The close names no nodes: what a closed execution had in flight loses its leases here, when a worker asks for it.
    for item = 1, refused == REFUSED and sub(got[1], -1) == CLOSED and count or 0 do
      leases_gone[#leases_gone + 1] = lease_of(key, from + 3 * item - 3)
    end
    return refused
  end
  local before, filled = count_of(got[2]), 0
  hash, counts = key, before
  for item = 1, count do
    local at, record, answer, changed = from + 3 * item - 3, got[item + 2], REFUSED, nil
    if record then
      local attempt = ARGV[at + 1]
      if sub(record, 2, #attempt + 1) == attempt then
        answer, changed = move(sub(record, 1, 1), record, at, state)
      end
      if answer == REFUSED then
        parsed(record) -- what no release of weft has written is poison
      elseif changed then
        set[filled + 1], set[filled + 2] = ARGV[at], changed
        filled = filled + 2
      end
    end
    reply[replies + item] = answer
  end
  if counts ~= before then
    set[filled + 1], set[filled + 2] = COUNTS, text_of(counts)
    filled = filled + 2
  end
  if filled > 0 then
    call('HSET', key, unpack(set, 1, filled))
  end
end

-- Let `move` look at each current attempt, given its phase, its field, where its arguments begin, and the state of its
-- execution. It returns an answer, and the node's new field where that changes. `condition`: when leases are written, as
-- ZADD knows it.
local function answers(move, condition)
  for index = 1, execution_count do
    local generation, count, before = ARGV[cursor], tonumber(ARGV[cursor + 1]), leased
    local refused = guarded(index, step, move, generation, cursor + 2, count)
    if refused then
      leased = before
      for item = 1, count do
        reply[replies + item] = refused
      end
    end
    cursor, replies = cursor + 2 + 3 * count, replies + count
  end
  if leased > 0 then
    call('ZADD', KEYS[LEASES_KEY], condition or 'CH', unpack(leases, 1, leased))
  end
  if leases_gone[1] then
    call('ZREM', KEYS[LEASES_KEY], unpack(leases_gone))
  end
  return reply
end
