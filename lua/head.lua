-- The clock, the states as they stand, and the rule that both paths share. The contract is in README.md.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local KEYS, ARGV = KEYS, ARGV
local pack, unpack, spread = struct.pack, struct.unpack, unpack
local found = {}
if #KEYS == 1 then
  found[1] = redis.pcall('GET', KEYS[1])
elseif #KEYS > 1 then
  found = redis.call('MGET', spread(KEYS))
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

-- Every state ends: at a point in time in µs, rounded up to ms.
local function set_until(key, value, ends)
  redis.call('SET', key, value, 'PXAT', ('%d'):format(ends / 1000 + 1))
end

