-- What the paths for more than one request share: the states as they were found, and GCRA's rule.
local pack = struct.pack
local found
if #KEYS == 1 then
  found = { state }
else
  found = #KEYS > 0 and redis.call('MGET', spread(KEYS)) or {}
end

-- Of `times` equal charges of (us, more), one after the other, how many pass, and where they leave the state.
local function admit(at, rest, us, more, denominator, latest, latest_rest, times)
  if at < now then
    at, rest = now, 0
  end
  for admitted = 0, times - 1 do
    local after, after_rest = at + us, rest + more
    if after_rest >= denominator then
      after, after_rest = after + 1, after_rest - denominator
    end
    if after > latest or (after == latest and after_rest > latest_rest) then
      return admitted, at, rest
    end
    at, rest = after, after_rest
  end
  return times, at, rest
end

