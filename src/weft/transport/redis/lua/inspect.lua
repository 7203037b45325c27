-- Look at the lanes. What is acknowledged is deleted, so a stream has what nobody took and what is in hand.
-- KEYS: streams.  ARGV: group.
-- Answers for each: how many wait, how many are in hand, and when the first that waits was queued, in
-- microseconds as text; "" where none waits.
local seen = {}
for number, key in ipairs(KEYS) do
  local length = redis.pcall('XLEN', key)
  if type(length) == 'table' then
    length = 0
  end
  local pending, after = 0, '0-0'
  if length > 0 then
    for _, about in ipairs(redis.call('XINFO', 'GROUPS', key)) do
      local fields = {}
      for i = 1, #about, 2 do
        fields[about[i]] = about[i + 1]
      end
      if fields['name'] == ARGV[1] then
        pending, after = fields['pending'], fields['last-delivered-id']
      end
    end
  end
  local oldest = ''
  local depth = math.max(0, length - pending)
  if depth > 0 then
    local entry = redis.call('XRANGE', key, '(' .. after, '+', 'COUNT', 1)[1]
    if entry then
      oldest = string.match(entry[1], '^%d+') .. '000'
      for i = 1, #entry[2], 2 do
        if entry[2][i] == 'q' and string.match(entry[2][i + 1], '^%d+$') then
          oldest = entry[2][i + 1]
        end
      end
    end
  end
  seen[number] = { depth, pending, oldest }
end
return seen
