-- The script's reply: see "The decide form" in lua/README.md.

local ffi = require "ffi"

local C, TEXT, cast = ffi.C, ffi.typeof "const char *", ffi.cast
local tonumber, type = tonumber, type

ffi.cdef "long long strtoll(const char *text, char **behind, int base);"

local _M = {}

_M.OUTCOME, _M.CHARGE, _M.RETRY_AFTER = 3, 4, 5

-- The last number before those of the first charge, and the numbers of each.
local HEAD, WIDTH = 5, 4

-- One reply is read and used before the next one is: nothing waits meanwhile.
local numbers = {}
for n = 1, HEAD + WIDTH * 32 do numbers[n] = 0 end

local BLANK, MINUS, ZERO, NINE = 32, 45, 48, 57

-- The place behind the number that was read.
local behind = ffi.new "char *[1]"

-- The numbers of a reply about so many charges; nothing if the text is not one. The next call writes over them.
function _M.read(text, charges)
  if type(text) ~= "string" then return nil end
  -- The C library reads: a loop over letters has one way for digits and one for blanks, and its pace hangs on the letter with which
  -- the compiler happens to begin.
  local begin, at, last = cast(TEXT, text), 0, HEAD + WIDTH * charges
  for n = 1, last do
    local letter = begin[at]
    if letter ~= MINUS and (letter < ZERO or letter > NINE) then return nil end
    numbers[n] = tonumber(C.strtoll(begin + at, behind, 10))
    at = tonumber(behind[0] - begin) + 1
    if n < last and begin[at - 1] ~= BLANK then return nil end
  end
  if at ~= #text + 1 then return nil end
  return numbers
end

-- The numbers of a charge: its verdict, what remains, and the times until all of it does and until the charge passes.
function _M.of(read, charge)
  local at = HEAD + WIDTH * (charge - 1)
  return read[at + 1], read[at + 2], read[at + 3], read[at + 4]
end

return _M
