-- The bytes of charges whose windows are those of a calendar: they move on with time.

local clock = require "tollgate.clock"
local ffi = require "ffi"
local wire = require "tollgate.wire"

local part = wire.part
local now = clock.seconds

local _M = {}

-- The bounds in a charge: the current window lies between the third and the fourth.
local BOUNDS, CURRENT = 7, 3

local packed = ffi.new("double[7]")

-- The charge as a part of a question at this time. Behind the last window that the file knows it is that of the last one, and the
-- script says that no window holds its time.
function _M.asked(charge)
  local time = now() * 1000000
  if charge.asked and time >= charge.begins and time < charge.ends then return charge.asked end
  local starts = charge.starts
  local first = 1
  while first + BOUNDS <= #starts and starts[first + CURRENT] <= time do first = first + 1 end
  for n = 0, BOUNDS - 1 do packed[n] = starts[first + n] end
  charge.begins, charge.ends = starts[first + CURRENT - 1], starts[first + CURRENT]
  charge.asked = part(charge.bytes .. ffi.string(packed, BOUNDS * 8))
  return charge.asked
end

return _M
