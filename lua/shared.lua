-- The parts that the paths for several requests share: names, the states as they were found, and GCRA's rule.
local KEYS, ARGV, spread, pack, unpack = KEYS, ARGV, unpack, struct.pack, struct.unpack
-- The mark of a rest: its denominator modulo the largest prime of 16 bits.
local MARKS = 65521
-- The states of some keys as they are, and an error if they cannot be read.
local function read(keys)
  if #keys ~= 1 then
    return #keys > 0 and redis.call('MGET', spread(keys)) or {}
  end
  if state == nil or keys[1] ~= key then
    state = redis.pcall('GET', keys[1])
  end
  -- A wrong type is not ours to touch; any other error (a right that is missing) fails the call.
  return { state }, state and state.err and state.err:sub(1, 9) ~= 'WRONGTYPE' and state
end
-- A call that says where the entries of its process stand: held_apart.lua reads no more than these, and the heads.
local is_told = #ARGV > 1 and #run > 22 and run:byte(2) == 4
-- The length of a state from which on two reads of parts are cheaper than one of the whole.
local FAR = 789
-- The states as they were found, by number of key. Some are only the head and the caller's entry: `parts` then has the entry's
-- offset and the length of the state.
local found, parts, failed
if not is_told then
  found, failed = read(KEYS)
  if failed then
    return failed
  end
end

-- The width of the cells at whose ends states of a tag expire. Expiries are whole milliseconds, so narrower cells would not
-- differ.
local function cell_of(tag)
  return tag < 138 and 1024 or 2 ^ (tag - 128)
end

-- The number of passing charges among `times` equal ones of (us, more), one after the other, and the state that they leave.
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

