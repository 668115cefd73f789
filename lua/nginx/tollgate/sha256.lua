-- SHA-256, for identities that are too long for a name. They are rare, so that plain Lua is fast enough.

local bit = require "bit"

local band, bnot, bxor, ror, rshift, tobit = bit.band, bit.bnot, bit.bxor, bit.ror, bit.rshift, bit.tobit
local byte, char, format, rep = string.byte, string.char, string.format, string.rep
local floor = math.floor

-- The fractional parts of the roots of primes, as the standard has them: square roots to begin with, cube roots for the rounds.
local function fraction(root)
  return tobit(floor((root - floor(root)) * 4294967296))
end

local BEGIN, ROUNDS = {}, {}
do
  local candidate = 2
  while #ROUNDS < 64 do
    local is_prime = true
    for divisor = 2, floor(candidate ^ 0.5) do
      if candidate % divisor == 0 then is_prime = false end
    end
    if is_prime then
      if #BEGIN < 8 then BEGIN[#BEGIN + 1] = fraction(candidate ^ 0.5) end
      ROUNDS[#ROUNDS + 1] = fraction(candidate ^ (1 / 3))
    end
    candidate = candidate + 1
  end
end

local function word(number)
  return char(floor(number / 16777216) % 256, floor(number / 65536) % 256, floor(number / 256) % 256, number % 256)
end

local function block(hash, text, at)
  local w = {}
  for n = 1, 16 do
    local a, b, c, d = byte(text, at + 4 * n - 4, at + 4 * n - 1)
    w[n] = tobit(a * 16777216 + b * 65536 + c * 256 + d)
  end
  for n = 17, 64 do
    local x, y = w[n - 15], w[n - 2]
    local s0 = bxor(ror(x, 7), ror(x, 18), rshift(x, 3))
    local s1 = bxor(ror(y, 17), ror(y, 19), rshift(y, 10))
    w[n] = tobit(w[n - 16] + s0 + w[n - 7] + s1)
  end
  local a, b, c, d, e, f, g, h = unpack(hash)
  for n = 1, 64 do
    local s1 = bxor(ror(e, 6), ror(e, 11), ror(e, 25))
    local one = tobit(h + s1 + bxor(band(e, f), band(bnot(e), g)) + ROUNDS[n] + w[n])
    local s0 = bxor(ror(a, 2), ror(a, 13), ror(a, 22))
    local two = tobit(s0 + bxor(band(a, b), band(a, c), band(b, c)))
    a, b, c, d, e, f, g, h = tobit(one + two), a, b, c, tobit(d + one), e, f, g
  end
  local sums = { a, b, c, d, e, f, g, h }
  for n = 1, 8 do hash[n] = tobit(hash[n] + sums[n]) end
end

-- The digest, as 64 digits.
return function(text)
  local hash = { unpack(BEGIN) }
  local length = #text
  text = text .. "\128" .. rep("\0", (55 - length) % 64) .. word(floor(length / 536870912)) .. word(length * 8 % 4294967296)
  for at = 1, #text, 64 do block(hash, text, at) end
  local digits = {}
  for n = 1, 8 do digits[n] = format("%08x", hash[n] % 4294967296) end
  return table.concat(digits)
end
