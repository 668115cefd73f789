-- The script's reply: see "The decide form" in lua/README.md.

local byte, type = string.byte, type

local _M = {}

_M.OUTCOME, _M.CHARGE, _M.RETRY_AFTER = 3, 4, 5

-- The last number before those of the first charge, and the numbers of each.
local HEAD, WIDTH = 5, 4

-- One reply is read and used before the next one is: nothing waits meanwhile.
local numbers = {}
for n = 1, HEAD + WIDTH * 32 do numbers[n] = 0 end

-- The numbers of a reply about so many charges; nothing if the text is not one. The next call writes over them.
function _M.read(text, charges)
  if type(text) ~= "string" then return nil end
  local wanted = HEAD + WIDTH * charges
  local count, number, sign, digits = 1, 0, 1, 0
  -- One loop, since the compiler gives up where another one stands in it. Behind the last byte there is a blank.
  for at = 1, #text + 1 do
    local letter = byte(text, at) or 32
    if letter >= 48 and letter <= 57 then
      number = number * 10 + (letter - 48)
      digits = digits + 1
    elseif letter == 32 and digits > 0 and count <= wanted then
      numbers[count] = sign * number
      count, number, sign, digits = count + 1, 0, 1, 0
    elseif letter == 45 and digits == 0 and sign == 1 then
      sign = -1
    else
      return nil
    end
  end
  if count ~= wanted + 1 then return nil end
  return numbers
end

-- The numbers of a charge: its verdict, what remains, and the times until all of it does and until the charge passes.
function _M.of(read, charge)
  local at = HEAD + WIDTH * (charge - 1)
  return read[at + 1], read[at + 2], read[at + 3], read[at + 4]
end

return _M
