-- End the leases of attempts that are over. The lease of the current attempt of a live execution stays: whoever says that
-- this attempt is over may know that from a commit which the database has lost, and the attempt is orphaned again. (guard)
-- ARGV, of each execution: number of attempts; for each: name, attempt with a colon behind it.  Reply: nothing.
local gone = {}

local function step(key, from, count)
  local fields = {FENCE}
  for item = 1, count do
    fields[item + 1] = ARGV[from + 2 * item - 2]
  end
  local got = fetch(key, fields, count + 1)
  local refused = refusal(got[1])
  for item = 1, count do
    local name, attempt, record = ARGV[from + 2 * item - 2], ARGV[from + 2 * item - 1], got[item + 1]
    if refused or not record or sub(record, 2, #attempt + 1) ~= attempt then
      gone[#gone + 1] = name .. COLON .. attempt .. id_of(key)
    end
  end
end

for index = 1, execution_count do
  local count = number()
  guarded(index, step, cursor, count)
  cursor = cursor + 2 * count
end
if gone[1] then
  call('ZREM', KEYS[LEASES_KEY], unpack(gone))
end
