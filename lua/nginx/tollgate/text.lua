-- Texts as the services behind read them: blanks, percent signs, UTF-8, and the one form of a number, a UUID or an IPv6 address.

local address = require "tollgate.address"
local identity = require "tollgate.identity"

local byte, char, find, format, gsub, match = string.byte, string.char, string.find, string.format, string.gsub, string.match
local abs, huge, lower, rep, sub, tonumber = math.abs, math.huge, string.lower, string.rep, string.sub, tonumber

local _M = {}

-- True for the blanks of ASCII.
local function is_blank(letter)
  return letter == 32 or (letter ~= nil and letter >= 9 and letter <= 13 and letter ~= 11)
end

-- The blanks of ASCII around a text do not count.
function _M.trim(text)
  if not is_blank(byte(text, 1)) and not is_blank(byte(text, -1)) then return text end
  local first = find(text, "[^ \t\n\f\r]")
  if not first then return "" end
  local last = #text
  while find(sub(text, last, last), "[ \t\n\f\r]") do last = last - 1 end
  return sub(text, first, last)
end

-- The text without this byte at its end. A pattern with something of any length before the end is tried from each place again, and
-- a caller's field of eight thousand signs would keep a worker busy for a third of a second.
function _M.without_end(text, sign)
  local last = #text
  while byte(text, last) == sign do last = last - 1 end
  return sub(text, 1, last)
end

local function decoded(digits)
  return char(tonumber(digits, 16))
end

-- A percent sign without two digits behind it stands for itself.
function _M.percent_decode(text)
  if not find(text, "%", 1, true) then return text end
  return (gsub(text, "%%(%x%x)", decoded))
end

-- The bytes that may follow the first byte of a character, and its length; nothing if no character begins so.
local function character(first)
  if first >= 0xc2 and first <= 0xdf then return 2, 0x80, 0xbf end
  if first == 0xe0 then return 3, 0xa0, 0xbf end
  if first == 0xed then return 3, 0x80, 0x9f end
  if first >= 0xe1 and first <= 0xef then return 3, 0x80, 0xbf end
  if first == 0xf0 then return 4, 0x90, 0xbf end
  if first >= 0xf1 and first <= 0xf3 then return 4, 0x80, 0xbf end
  if first == 0xf4 then return 4, 0x80, 0x8f end
end

-- The number of bytes from `at` on that are a character, and true; or that are the start of none, and false.
local function step(text, at)
  local first = byte(text, at)
  if first < 0x80 then return 1, true end
  local length, least, most = character(first)
  if not length then return 1, false end
  for n = 1, length - 1 do
    local next = byte(text, at + n)
    if not next or next < least or next > most then return n, false end
    least, most = 0x80, 0xbf
  end
  return length, true
end

function _M.is_utf8(text)
  local at = find(text, "[\128-\255]")
  while at and at <= #text do
    local length, is_character = step(text, at)
    if not is_character then return false end
    at = at + length
  end
  return true
end

-- Each start of no character becomes U+FFFD.
function _M.utf8_lossy(text)
  if _M.is_utf8(text) then return text end
  local parts, at = {}, 1
  while at <= #text do
    local length, is_character = step(text, at)
    parts[#parts + 1] = is_character and sub(text, at, at + length - 1) or "\239\191\189"
    at = at + length
  end
  return table.concat(parts)
end

local function number(text)
  local sign, digits = text:match("^([+-]?)(%d+)$")
  if not digits then return nil end
  digits = gsub(digits, "^0+", "")
  if digits == "" then return "0" end
  return sign == "-" and "-" .. digits or digits
end

local HYPHENS = { [9] = true, [14] = true, [19] = true, [24] = true }

local function uuid(text)
  local length = #text
  if length == 38 then
    if sub(text, 1, 1) ~= "{" or sub(text, 38) ~= "}" then return nil end
    text = sub(text, 2, 37)
  elseif length == 45 then
    if sub(text, 1, 9) ~= "urn:uuid:" then return nil end
    text = sub(text, 10)
  elseif length ~= 32 and length ~= 36 then
    return nil
  end
  if length ~= 32 then
    for place in pairs(HYPHENS) do
      if sub(text, place, place) ~= "-" then return nil end
    end
    text = sub(text, 1, 8) .. sub(text, 10, 13) .. sub(text, 15, 18) .. sub(text, 20, 23) .. sub(text, 25)
  end
  if not find(text, "^" .. rep("%x", 32) .. "$") then return nil end
  local form = lower(text)
  return number(text) or
    sub(form, 1, 8) .. "-" .. sub(form, 9, 12) .. "-" .. sub(form, 13, 16) .. "-" .. sub(form, 17, 20) .. "-" .. sub(form, 21)
end

-- The shortest digits that are read as this number, without an exponent.
local function plain(value)
  local written
  for digits = 0, 16 do
    written = format("%." .. digits .. "e", value)
    if tonumber(written) == value then break end
  end
  local sign, first, rest, power = match(written, "^(-?)(%d)%.?(%d*)e([+-]%d+)$")
  local digits, point = first .. rest, tonumber(power) + 1
  if point <= 0 then return sign .. "0." .. rep("0", -point) .. digits end
  if point >= #digits then return sign .. digits .. rep("0", point - #digits) end
  return sign .. sub(digits, 1, point) .. "." .. sub(digits, point + 1)
end

-- A number with a point or an exponent. One that is too large or too small for a reader of numbers stays as it is.
local function decimal(text)
  local whole, fraction, power = match(text, "^[+-]?(%d*)%.?(%d*)(.*)$")
  if not whole or whole .. fraction == "" then return nil end
  if power ~= "" and not find(power, "^[eE][+-]?%d+$") then return nil end
  if not find(whole .. fraction, "[1-9]") then return "0" end
  local value = tonumber((gsub(text, "^%+", "")))
  if not value or value == 0 or abs(value) == huge then return nil end
  return plain(value)
end

local v6

-- An address with a port, which may have any number of zeros before it.
local function with_port(text)
  local host, port = match(text, "^(.+):(%d+)$")
  if not host then return nil end
  port = gsub(port, "^0+", "")
  if #port > 5 or tonumber(port) and tonumber(port) > 65535 then return nil end
  if port == "" then port = "0" end
  local within = match(host, "^%[([^%]]+)%]$")
  if within then
    local written = address.v6(within) and v6(within)
    return written and "[" .. written .. "]:" .. port
  end
  return address.is_v4(host) and host .. ":" .. port or nil
end

function v6(text)
  if not find(text, ":", 1, true) then return nil end
  local octets = address.v6(text)
  if not octets then return with_port(text) end
  if address.is_mapped(octets) then return format("::ffff:%d.%d.%d.%d", byte(octets, 13, 16)) end
  return identity.v6(octets)
end

-- Sixteen hexadecimal digits or more, and a ULID, are read in capital letters and in small ones.
local function in_small_letters(value)
  local digits = match(value, "^0[xX](%x+)$") or match(value, "^%x+$")
  if digits and #digits >= 16 then return lower(digits) end
  if #value ~= 26 or find(value, "%W") or find(value, "[iloILOuU]") then return nil end
  -- A ULID has 128 bits, and its 26 digits 130: its reader drops the first two.
  local digits = lower(value)
  local first = (find("0123456789abcdefghjkmnpqrstvwxyz", sub(digits, 1, 1), 1, true) - 1) % 8
  return first .. sub(digits, 2)
end

-- Handlers read 7, 007, 7.0 and +7 as one number, and a UUID or an IPv6 address in any of its forms as one.
-- They may remove blanks around a value.
function _M.one_form(text)
  local value = _M.trim(text)
  return uuid(value) or number(value) or decimal(value) or v6(value) or in_small_letters(value) or text
end

return _M
