-- The parts of a gateway that talk to Redis in the decide form, written from lua/README.md alone, and held to lua/vectors.json.
--
--   luajit gateway.lua vectors.json
--
-- It speaks Lua 5.1, with the library `bit` of LuaJIT. A gateway of your own may begin with a copy of it.

local bit = require('bit')
local band, bxor, bnot, ror, rshift, lshift = bit.band, bit.bxor, bit.bnot, bit.ror, bit.rshift, bit.lshift

local function hex(bytes)
  return (bytes:gsub('.', function(byte) return ('%02x'):format(byte:byte()) end))
end

local function unhex(digits)
  return (digits:gsub('..', function(byte) return string.char(tonumber(byte, 16)) end))
end

-- SHA-256, by its constants: the fractions of the roots of primes.
local function fraction(number)
  return bit.tobit(math.floor(number % 1 * 2 ^ 32))
end

local primes = {}
local candidate = 2
while #primes < 64 do
  local divisor = 2
  while candidate % divisor ~= 0 do divisor = divisor + 1 end
  if divisor == candidate then primes[#primes + 1] = candidate end
  candidate = candidate + 1
end

local function big_endian(number)
  return string.char(band(rshift(number, 24), 255), band(rshift(number, 16), 255), band(rshift(number, 8), 255), band(number, 255))
end

local function sha256(text)
  local state = {}
  for n = 1, 8 do state[n] = fraction(primes[n] ^ 0.5) end
  local padding = ('\0'):rep((55 - #text) % 64)
  local padded = text .. '\128' .. padding .. big_endian(0) .. big_endian(#text * 8)
  for block = 1, #padded, 64 do
    local w = {}
    for n = 0, 15 do
      local a, b, c, d = padded:byte(block + 4 * n, block + 4 * n + 3)
      w[n] = bit.tobit(lshift(a, 24) + lshift(b, 16) + lshift(c, 8) + d)
    end
    for n = 16, 63 do
      local x, y = w[n - 15], w[n - 2]
      local one, two = bxor(ror(x, 7), ror(x, 18), rshift(x, 3)), bxor(ror(y, 17), ror(y, 19), rshift(y, 10))
      w[n] = bit.tobit(w[n - 16] + one + w[n - 7] + two)
    end
    local a, b, c, d, e, f, g, h = unpack(state)
    for n = 0, 63 do
      local choice, majority = bxor(band(e, f), band(bnot(e), g)), bxor(band(a, b), band(a, c), band(b, c))
      local root = fraction(primes[n + 1] ^ (1 / 3))
      local one = bit.tobit(h + bxor(ror(e, 6), ror(e, 11), ror(e, 25)) + choice + root + w[n])
      local two = bit.tobit(bxor(ror(a, 2), ror(a, 13), ror(a, 22)) + majority)
      a, b, c, d, e, f, g, h = bit.tobit(one + two), a, b, c, bit.tobit(d + one), e, f, g
    end
    for n, value in ipairs { a, b, c, d, e, f, g, h } do state[n] = bit.tobit(state[n] + value) end
  end
  for n = 1, 8 do state[n] = big_endian(state[n]) end
  return table.concat(state)
end

local function hmac(key, text)
  key = #key > 64 and sha256(key) or key
  key = key .. ('\0'):rep(64 - #key)
  local function padded(by)
    return (key:gsub('.', function(byte) return string.char(bxor(byte:byte(), by)) end))
  end
  return sha256(padded(0x5c) .. sha256(padded(0x36) .. text))
end

-- The canonical form: at most 128 bytes, or a digest.
local function canonical(source)
  return #source <= 128 and source or 'd' .. sha256(source)
end

-- As RFC 5952 writes it: the longest run of zeros, of two groups at least, and the first of equal ones, is left out.
local function ipv6(octets)
  local groups = {}
  for n = 1, 16, 2 do
    local high, low = octets:byte(n, n + 1)
    groups[#groups + 1] = ('%x'):format(high * 256 + low)
  end
  local from, length = nil, 1
  for first = 1, 8 do
    local last = first
    while groups[last] == '0' do last = last + 1 end
    if last - first > length then from, length = first, last - first end
  end
  if not from then return table.concat(groups, ':') end
  return table.concat(groups, ':', 1, from - 1) .. '::' .. table.concat(groups, ':', from + length)
end

local function text_of(identity)
  local kind, content = identity:sub(1, 1), identity:sub(2)
  if kind == '\0' then return 'all' end
  if kind == '\1' then return 'none' end
  if kind == '\4' then return table.concat({ content:byte(1, 4) }, '.') end
  if kind == '\6' then
    local covered = content:sub(2)
    return ipv6(covered .. ('\0'):rep(16 - #covered)) .. '/' .. content:byte()
  end
  if kind == 'd' then return 'd' .. hex(content) end
  if kind == 'b' then
    return '=' .. content:gsub('[^%w%-._:@/+=]', function(byte) return ('%%%02x'):format(byte:byte()) end)
  end
  local parts = {}
  while content ~= '' do
    local length = content:byte()
    parts[#parts + 1] = text_of(content:sub(2, 1 + length))
    content = content:sub(2 + length)
  end
  return '(' .. table.concat(parts, ',') .. ')'
end

-- CRC-16 of the XMODEM kind.
local function crc16(text)
  local crc = 0
  for n = 1, #text do
    crc = bxor(crc, lshift(text:byte(n), 8))
    for _ = 1, 8 do
      crc = band(crc >= 0x8000 and bxor(lshift(crc, 1), 0x1021) or lshift(crc, 1), 0xffff)
    end
  end
  return crc
end

local function name_of(of)
  local policy = of.policy:gsub('[^%w%-._]', function(byte) return ('%%%02x'):format(byte:byte()) end)
  local tag = of.partitions > 0 and '{' .. crc16(of.identity) % of.partitions .. '}:' or ''
  return of.prefix .. ':' .. tag .. policy .. ':' .. of.slot .. '/' .. of.unit .. ':' .. of.identity
end

local function slot_of(name)
  return crc16(name:match('{([^}]+)}') or name) % 16384
end

-- A whole number below 2^53 as a little-endian double.
local function double(number)
  if number == 0 then return ('\0'):rep(8) end
  local mantissa, exponent = math.frexp(number)
  mantissa, exponent = (mantissa * 2 - 1) * 2 ^ 52, exponent + 1022
  local bytes = {}
  for n = 1, 6 do
    bytes[n] = string.char(mantissa % 256)
    mantissa = math.floor(mantissa / 256)
  end
  return table.concat(bytes) .. string.char(mantissa % 16 + exponent % 16 * 16, math.floor(exponent / 16))
end

local function doubles(numbers)
  for n, number in ipairs(numbers) do numbers[n] = double(number) end
  return table.concat(numbers)
end

-- The product of a count below 2^40 and a fraction of a microsecond, whole and rest: by decimals, as some products are above 2^53.
local function drain(count, units, denominator)
  local whole, rest = 0, 0
  for digit in ('%d'):format(count):gmatch('%d') do
    -- Ten times what there is, and one unit for each of the digit.
    local more = rest * 10 + digit * units
    whole, rest = whole * 10 + math.floor(more / denominator), more % denominator
  end
  return whole, rest
end

local MODES = { enforce = 0, shadow = 1, probe = 2 }

local function gcra(of)
  local a, b = of.limit, of.period_us
  while b > 0 do a, b = b, a % b end
  local units, denominator = of.period_us / a, of.limit / a
  local us, rest = drain(of.cost, units, denominator)
  local full, full_rest = drain(of.burst, units, denominator)
  local _, exponent = math.frexp(math.max(full, 1))
  local unit, unit_rest = drain(1, units, denominator)
  return doubles { us, full } .. string.char(128 + exponent - 1) .. doubles { denominator, rest, full_rest, unit, unit_rest }
end

local function ban(of)
  local guards = string.char(of.guards % 256, math.floor(of.guards / 256) % 256, 0, 0)
  return double(0) .. string.char(of.strikes, of.onset) .. doubles(of.times) .. guards
end

local WORDS = {
  gcra,
  function(of) return doubles { of.cost, of.limit, of.period_us, of.detail } end,
  function(of) return doubles { of.cost, of.limit, of.period_us } end,
  function(of) return doubles { of.cost, of.limit, of.period_us, of.detail } end,
  function(of) return doubles { of.cost, of.limit, of.period_us } end,
  [8] = ban,
  [9] = function(of) return doubles { of.cost, of.limit, of.period_us, of.detail, of.burst } end,
  [10] = function(of) return doubles { of.cost, of.limit, unpack(of.bounds) } end,
}

local function charge_of(of)
  of.cost = math.min(of.cost, of.burst + 1)
  return string.char(of.algorithm, MODES[of.mode]) .. WORDS[of.algorithm](of)
end

-- The numbers of the reply, and again as text.
local function reply_of(text, charges)
  local numbers = {}
  for number in text:gmatch('%S+') do numbers[#numbers + 1] = tonumber(number) end
  assert(#numbers == 5 + 4 * charges, 'so many numbers')
  local reply = { us = numbers[1] * 1000000 + numbers[2], outcome = numbers[3], charge = numbers[4], retry_after = numbers[5] }
  for c = 1, charges do
    local verdict, remaining, reset, wait = unpack(numbers, 2 + 4 * c, 5 + 4 * c)
    reply[c] = { verdict = verdict, remaining = remaining, reset = reset, wait = wait }
  end
  return reply
end

-- JSON without escapes and without brackets in its texts is Lua but for its signs.
local file = assert(io.open(arg[1], 'rb'))
local json = file:read('*a')
file:close()
local lua = json:gsub('"([%w_]+)":', '%1='):gsub('%[', '{'):gsub('%]', '}'):gsub('%f[%w]null%f[%W]', 'false')
local vectors = assert(loadstring('return ' .. lua))()

local function same(found, expected, what)
  if found ~= expected then error(what .. ': ' .. tostring(found) .. ' is not ' .. tostring(expected), 0) end
end

for _, of in ipairs(vectors.identities) do
  local key = canonical(unhex(of.source))
  same(hex(key), of.canonical, 'the canonical form of ' .. of.source)
  same(text_of(key), of.text, 'the text of ' .. of.source)
  same('h' .. hex(hmac(unhex(of.secret), key):sub(1, 16)), of.hashed, 'the hash of ' .. of.source)
end
for _, of in ipairs(vectors.names) do
  same(name_of(of), of.name, 'a name')
  same(slot_of(of.name), of.cluster_slot, 'the slot of ' .. of.name)
end
for _, of in ipairs(vectors.charges) do
  local expected = of.bytes
  same(hex(charge_of(of)), expected, 'a charge of algorithm ' .. of.algorithm)
end
for _, of in ipairs(vectors.calls) do
  local reply = reply_of(of.reply, #of.charges)
  same(reply.us, vectors.time_us, 'the time of ' .. of.reply)
  local denied, failed, changed = 0, 0, false
  for c, verdict in ipairs(reply) do
    local is_enforced = unhex(of.charges[c]):byte(2) == 0
    denied = denied + (is_enforced and verdict.verdict == 0 and 1 or 0)
    failed = failed + ((verdict.verdict == 2 or verdict.verdict == 3) and 1 or 0)
    same(verdict.wait == 0, verdict.verdict ~= 0, 'a wait is that of a denial: ' .. of.reply)
    changed = changed or (is_enforced and #of.charges == 1 and of.states[c] ~= of.states_after[c])
  end
  same(reply.outcome, failed > 0 and 2 or denied > 0 and 0 or 1, 'the outcome of ' .. of.reply)
  same(reply.retry_after ~= 0, denied > 0, 'the seconds of ' .. of.reply)
  same(changed, reply.outcome == 1 and #of.charges == 1, 'a denial takes nothing: ' .. of.reply)
end
print(('%d identities, %d names, %d charges, %d calls'):format(#vectors.identities, #vectors.names, #vectors.charges, #vectors.calls))
