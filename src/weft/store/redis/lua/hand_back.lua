-- Let leases run out now. (guard, attempts)
-- ARGV: as in attempts, with: nonce with its length in front.  Reply: an answer for each attempt.
return answers(3, function(record, at, _, id)
  local from = kept_from(record, RUNNING, ARGV[at + 1])
  if not from or not holder_in(record, from, ARGV[at + 2]) then
    return REFUSED
  end
  lease(ARGV[at], id, now_text)
  return YES
end)
