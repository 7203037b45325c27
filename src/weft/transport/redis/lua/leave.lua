-- Forget a consumer that stops. What it has in hand goes to the end of its stream again, or is left where it is;
-- then the consumer stays, because removing it would destroy what it holds.
-- KEYS: streams.  ARGV: group, consumer, 1 to give back what it has.
for _, key in ipairs(KEYS) do
  local page = redis.pcall('XPENDING', key, ARGV[1], '-', '+', 1000, ARGV[2])
  -- No such stream or group: nothing to forget.
  if not page.err then
    while ARGV[3] == '1' and #page > 0 do
      for _, pending in ipairs(page) do
        local entry = redis.call('XRANGE', key, pending[1], pending[1])[1]
        if entry then
          redis.call('XADD', key, '*', unpack(entry[2]))
          redis.call('XDEL', key, pending[1])
        end
        redis.call('XACK', key, ARGV[1], pending[1])
      end
      page = redis.call('XPENDING', key, ARGV[1], '-', '+', 1000, ARGV[2])
    end
    if #page == 0 then
      redis.call('XGROUP', 'DELCONSUMER', key, ARGV[1], ARGV[2])
    end
  end
end
return 1
