-- Take over what others took and did not acknowledge for so long. A page of XAUTOCLAIM may be empty where
-- there is more behind it, so this goes on to the end, in steps of so many pages.
-- KEYS: streams.  ARGV: group, consumer, idle milliseconds, limit, pages, the stream to begin with, its cursor.
-- Answers {stream and cursor to go on with, entries as {stream, id, fields}}; a stream past the last: the end.
local group, consumer, idle = ARGV[1], ARGV[2], ARGV[3]
local left, pages = tonumber(ARGV[4]), tonumber(ARGV[5])
local at, cursor = tonumber(ARGV[6]), ARGV[7]
local found = {}
while at <= #KEYS and left > 0 and pages > 0 do
  local key = KEYS[at]
  local page = redis.pcall('XAUTOCLAIM', key, group, consumer, idle, cursor, 'COUNT', left, 'JUSTID')
  pages = pages - 1
  if page.err then
    -- There is no such stream or group: nothing was taken.
    at, cursor = at + 1, '0-0'
  else
    for _, id in ipairs(page[2]) do
      local entry = redis.call('XRANGE', key, id, id)[1]
      if entry then
        found[#found + 1] = { at, id, entry[2] }
        left = left - 1
      else
        -- The entry was deleted. Redis 6.2 would keep its id for ever.
        redis.call('XACK', key, group, id)
      end
    end
    cursor = page[1]
    if cursor == '0-0' then
      at = at + 1
    end
  end
end
return { at, cursor, found }
