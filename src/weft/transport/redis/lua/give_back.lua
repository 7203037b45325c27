-- Give back what was taken and is not wanted: it stands at the end of its stream again. Doing it twice changes
-- nothing more, because what was given back is not there under its old id.
-- KEYS: the stream.  ARGV: group, ids.
for i = 2, #ARGV do
  local entry = redis.call('XRANGE', KEYS[1], ARGV[i], ARGV[i])[1]
  if entry then
    redis.call('XADD', KEYS[1], '*', unpack(entry[2]))
    redis.call('XDEL', KEYS[1], ARGV[i])
  end
  redis.call('XACK', KEYS[1], ARGV[1], ARGV[i])
end
return 1
