-- Addresses as bytes: 4 for IPv4, 16 for IPv6. An IPv4 address in an IPv6 notation is the IPv4 address.

local byte, char, find, gmatch, match, sub = string.byte, string.char, string.find, string.gmatch, string.match, string.sub
local rep, tonumber = string.rep, tonumber
local floor = math.floor

local _M = {}

local function v4(text)
  local a, b, c, d = match(text, "^(%d%d?%d?)%.(%d%d?%d?)%.(%d%d?%d?)%.(%d%d?%d?)$")
  if not a then return nil end
  local parts = { a, b, c, d }
  for n = 1, 4 do
    local part = parts[n]
    -- A leading zero is octal to some readers.
    if #part > 1 and byte(part) == 48 or tonumber(part) > 255 then return nil end
  end
  return char(a, b, c, d)
end

function _M.is_v4(text)
  return v4(text) ~= nil
end

-- The bytes of groups between colons; the last may be an IPv4 address if the text ends there.
local function groups(text, ends)
  if text == "" then return "" end
  local bytes, parts = "", {}
  for part in gmatch(text .. ":", "([^:]*):") do parts[#parts + 1] = part end
  for n, part in ipairs(parts) do
    if find(part, "^%x%x?%x?%x?$") then
      local number = tonumber(part, 16)
      bytes = bytes .. char(floor(number / 256), number % 256)
    elseif ends and n == #parts then
      local tail = v4(part)
      if not tail then return nil end
      bytes = bytes .. tail
    else
      return nil
    end
  end
  return bytes
end

-- The longest text of an address.
local LONGEST = #"0000:0000:0000:0000:0000:ffff:255.255.255.255"

local function v6(text)
  if #text > LONGEST then return nil end
  local at = find(text, "::", 1, true)
  if not at then
    local bytes = groups(text, true)
    return bytes and #bytes == 16 and bytes or nil
  end
  local head, tail = groups(sub(text, 1, at - 1), false), groups(sub(text, at + 2), true)
  if not head or not tail or #head + #tail > 14 then return nil end
  return head .. rep("\0", 16 - #head - #tail) .. tail
end

_M.v6 = v6

local MAPPED, NAT64 = rep("\0", 10) .. "\255\255", "\0\100\255\155" .. rep("\0", 8)

function _M.is_mapped(octets)
  return sub(octets, 1, 12) == MAPPED
end

-- The IPv4 address that an IPv6 address stands for, or the address itself.
function _M.by_its_bits(address)
  if #address == 16 then
    local head = sub(address, 1, 12)
    if head == MAPPED or head == NAT64 then return sub(address, 13) end
  end
  return address
end

local function is_port(text)
  return find(text, "^[%w._-]+$") ~= nil
end

local function v6_with_zone(text)
  local address, zone = match(text, "^([^%%]*)%%(.*)$")
  if zone == "" then return nil end
  return v6(address or text)
end

-- The address that proxies write: with a port or without, in brackets or not. `text` has no blanks around it.
function _M.read(text)
  if byte(text) == 91 then
    local host, port = match(text, "^%[([^%]]*)%](.*)$")
    if not host or (port ~= "" and not (byte(port) == 58 and is_port(sub(port, 2)))) then return nil end
    return v6_with_zone(host)
  end
  local colon = find(text, ":", 1, true)
  if not colon then return v4(text) end
  if not find(text, ":", colon + 1, true) then
    return is_port(sub(text, colon + 1)) and v4(sub(text, 1, colon - 1)) or nil
  end
  return v6_with_zone(text)
end

-- The first `bits` bits, and zeros behind them.
local function masked(address, bits)
  local whole, rest = floor(bits / 8), bits % 8
  local head = sub(address, 1, whole)
  if rest > 0 then
    local step = 2 ^ (8 - rest)
    head = head .. char(floor(byte(address, whole + 1) / step) * step)
  end
  return head .. rep("\0", #address - #head)
end

_M.masked = masked

-- A network as a configuration writes it, which our program has checked.
function _M.network(text)
  local address, bits = match(text, "^([^/]*)/?(%d*)$")
  local bytes = v4(address) or v6(address)
  bits = tonumber(bits) or #bytes * 8
  if #bytes == 16 and sub(bytes, 1, 12) == MAPPED then
    bytes, bits = sub(bytes, 13), bits - 96
  end
  return { start = masked(bytes, bits), bits = bits }
end

-- True if an address is in one of the networks. Lists know only the notation ::ffff:0:0/96 of IPv4.
function _M.is_in(networks, address)
  if #address == 16 and sub(address, 1, 12) == MAPPED then address = sub(address, 13) end
  for n = 1, #networks do
    local network = networks[n]
    if #network.start == #address and masked(address, network.bits) == network.start then return true end
  end
  return false
end

return _M
