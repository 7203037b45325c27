-- Remove consumers that were not seen for so long and hold nothing. Removing one that does would destroy what
-- it holds, so looking and removing are one step.
-- KEYS: streams.  ARGV: group, milliseconds.  Answers how many were removed.
local removed = 0
for _, key in ipairs(KEYS) do
  local consumers = redis.pcall('XINFO', 'CONSUMERS', key, ARGV[1])
  if not consumers.err then
    for _, about in ipairs(consumers) do
      local fields = {}
      for i = 1, #about, 2 do
        fields[about[i]] = about[i + 1]
      end
      if fields['pending'] == 0 and fields['idle'] >= tonumber(ARGV[2]) then
        redis.call('XGROUP', 'DELCONSUMER', key, ARGV[1], fields['name'])
        removed = removed + 1
      end
    end
  end
end
return removed
