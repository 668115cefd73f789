-- The clock, the states as they stand, and the rule that both paths share. The contract is in README.md.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local KEYS, ARGV = KEYS, ARGV
local pack, unpack, spread = struct.pack, struct.unpack, unpack
local found
if #KEYS == 1 then
  found = { redis.pcall('GET', KEYS[1]) }
else
  found = #KEYS > 0 and redis.call('MGET', spread(KEYS)) or {}
end

-- GCRA: of `times` equal charges of (us, more), one after the other, how many pass, and where they leave the state.
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

