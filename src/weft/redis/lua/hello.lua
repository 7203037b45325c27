-- A server that was restarted or replaced may have lost what it answered for: its state counts as lost. A database that
-- lost commits is another incarnation: the state runs ahead of it, and counts as lost too.
-- What an execution holds names the incarnation it was installed under, so dropping its id drops them all. Their hashes go
-- too: nobody would come for that of an execution which has ended since. Tasks of a lost incarnation of the database may
-- rest on results that it no longer has: they go with it.
-- KEYS: server, incarnation id, active, leases, timers, free, unsettled, incarnation, lanes.
-- ARGV: the server's run id; how the keys of an execution's hash and of a lane begin; the incarnation of the database: id,
--   line, started, position ('' where the caller knows none); 1 if the caller has just compared it, and it prevails.
-- Returns 1 where there was something to drop, else 0 (a new server is no loss); and when the incarnation began.
local server, id = redis.call('GET', KEYS[1]), ARGV[4]
local known = redis.call('HMGET', KEYS[8], 'id', 'position', 'began')
local is_other = ARGV[8] == '1' and known[1] and known[1] ~= id
local began = known[3] or '0'
if is_other then
  local time = redis.call('TIME')
  began = string.format('%.0f', time[1] * 1000000 + time[2])
  for _, lane in ipairs(redis.call('SMEMBERS', KEYS[9])) do
    redis.pcall('XTRIM', ARGV[3] .. lane, 'MAXLEN', 0)
  end
end
if id ~= '' and (not known[1] or known[1] == id or is_other) then
  local position = ARGV[7]
  if known[1] == id and tonumber(known[2]) > tonumber(position) then
    position = known[2]
  end
  redis.call('HSET', KEYS[8], 'id', id, 'line', ARGV[5], 'started', ARGV[6], 'position', position, 'began', began)
end
if server == ARGV[1] and not is_other then
  return {0, began}
end
local ids = redis.call('ZRANGE', KEYS[3], 0, -1)
for index = 1, #ids do
  redis.call('UNLINK', ARGV[2] .. ids[index])
end
local dropped = redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7])
redis.call('SET', KEYS[1], ARGV[1])
return {(server or dropped > 0) and 1 or 0, began}
