-- Take tasks for a worker, so many at most: the queues in turn, in each the higher priorities first, of the lanes
-- of one priority the same share, and one of so many takes the one that has waited longest, so that nothing is starved.
-- Entries cost five times as much when they pass through Lua: of many, only how many to read from which lane.
-- KEYS: the streams of the lanes, queue by queue, higher priorities first; the set of lanes.
-- ARGV: group, consumer, limit, every how many the oldest, how many are few; then for each queue: how many were
--       taken from it, how many lanes it has, and their priorities.
-- Answers {entries, reads, bad, lanes}: {lane, entries} of what was taken, {lane, count} of what is to be read, the
-- lanes whose keys are no streams, and how many lanes there are.
local group, consumer = ARGV[1], ARGV[2]
local every = tonumber(ARGV[4])
local taken, bad = {}, {}
-- Of each lane: how many wait, behind which id, and how many of them are planned to be read.
local depth, after, planned = {}, {}, {}

local function look(lane)
  depth[lane], planned[lane] = 0, 0
  local length = redis.pcall('XLEN', KEYS[lane])
  if type(length) == 'table' then
    bad[#bad + 1] = lane
    return
  elseif length == 0 then
    return
  end
  for _, about in ipairs(redis.call('XINFO', 'GROUPS', KEYS[lane])) do
    local fields = {}
    for i = 1, #about, 2 do
      fields[about[i]] = about[i + 1]
    end
    if fields['name'] == group then
      depth[lane], after[lane] = length - fields['pending'], fields['last-delivered-id']
      return
    end
  end
  redis.call('XGROUP', 'CREATE', KEYS[lane], group, '0')
  depth[lane], after[lane] = length, '0-0'
end

local function plan(lane, count)
  if not depth[lane] then
    look(lane)
  end
  count = math.min(count, depth[lane] - planned[lane])
  if count <= 0 then
    return 0
  end
  planned[lane] = planned[lane] + count
  return count
end

local function read(lane, count)
  local reply = redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', count, 'STREAMS', KEYS[lane], '>')
  if not reply then
    return 0
  end
  taken[#taken + 1] = { lane, reply[1][2] }
  return #reply[1][2]
end

-- Take so many from members that each may have less: an equal share each, and again of those that had it.
local function deal(need, members, take)
  local got = 0
  while got < need and #members > 0 do
    local share = math.max(1, math.floor((need - got) / #members))
    local more = {}
    for _, member in ipairs(members) do
      local count = math.min(share, need - got)
      if count == 0 then
        break
      end
      local came = take(member, count)
      got = got + came
      if came == count then
        more[#more + 1] = member
      end
    end
    members = more
  end
  return got
end

-- The time and number of the first entry that nobody has.
local function head(lane)
  if depth[lane] <= planned[lane] then
    return nil
  end
  local entry = redis.call('XRANGE', KEYS[lane], '(' .. after[lane], '+', 'COUNT', 1)[1]
  if not entry then
    return nil
  end
  local time, number = string.match(entry[1], '^(%d+)-(%d+)$')
  return { tonumber(time), tonumber(number), entry[1] }
end

local function take_oldest(lanes, count)
  -- Where one lane alone has more, its next is the oldest, and need not pass through here.
  local having = {}
  for _, lane in ipairs(lanes) do
    if depth[lane] > planned[lane] then
      having[#having + 1] = lane
    end
  end
  if #having == 1 then
    return plan(having[1], count)
  end
  local heads, got = {}, 0
  for _, lane in ipairs(lanes) do
    heads[lane] = head(lane)
  end
  while got < count do
    local oldest
    for lane, at in pairs(heads) do
      local than = oldest and heads[oldest]
      if not than or at[1] < than[1] or (at[1] == than[1] and at[2] < than[2]) then
        oldest = lane
      end
    end
    if not oldest then
      break
    end
    got = got + read(oldest, 1)
    depth[oldest], after[oldest] = depth[oldest] - 1, heads[oldest][3]
    heads[oldest] = head(oldest)
  end
  return got
end

local function serve(queue, need)
  if #queue.lanes == 1 then
    return plan(queue.lanes[1], need)
  end
  local oldest = math.floor((queue.taken + need) / every) - math.floor(queue.taken / every)
  local urgent = need - oldest
  local got = 0
  for _, level in ipairs(queue.levels) do
    got = got + deal(urgent - got, level, plan)
  end
  if got == urgent and oldest > 0 then
    for _, lane in ipairs(queue.lanes) do
      plan(lane, 0)
    end
    got = got + take_oldest(queue.lanes, oldest)
  end
  queue.taken = queue.taken + got
  return got
end

local queues, at, lane = {}, 6, 0
while at <= #ARGV do
  local queue = { taken = tonumber(ARGV[at]), lanes = {}, levels = {} }
  local count, priority = tonumber(ARGV[at + 1]), nil
  for i = 1, count do
    lane = lane + 1
    queue.lanes[i] = lane
    if ARGV[at + 1 + i] ~= priority then
      priority = ARGV[at + 1 + i]
      queue.levels[#queue.levels + 1] = {}
    end
    local level = queue.levels[#queue.levels]
    level[#level + 1] = lane
  end
  queues[#queues + 1] = queue
  at = at + 2 + count
end
deal(tonumber(ARGV[3]), queues, serve)

local reads, count = {}, 0
for i = 1, #KEYS - 1 do
  if planned[i] and planned[i] > 0 then
    reads[#reads + 1] = { i, planned[i] }
    count = count + planned[i]
  end
end
if count <= tonumber(ARGV[5]) then
  for _, one in ipairs(reads) do
    read(one[1], one[2])
  end
  reads = {}
end
return { taken, reads, bad, redis.call('SCARD', KEYS[#KEYS]) }
