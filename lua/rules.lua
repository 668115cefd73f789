-- Functions that the rules share.
local byte, floor, max, min = string.byte, math.floor, math.max, math.min

local function is_whole(number)
  return number >= 0 and number < 2 ^ 53 and number % 1 == 0
end
