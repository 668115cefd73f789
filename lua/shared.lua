-- What the paths for several requests share: names, and the states as they were found.
local KEYS, ARGV, spread, pack, unpack = KEYS, ARGV, unpack, struct.pack, struct.unpack
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
