-- Identities in their canonical form, and as they stand in names: see "Names" in lua/README.md.

local sha256 = require "tollgate.sha256"
local span = require "tollgate.span"

local byte, char, format, gsub, sub = string.byte, string.char, string.format, string.gsub, string.sub
local concat, floor, tonumber = table.concat, math.floor, tonumber

local _M = {}

-- No canonical form is longer. A longer one has a digest in its place.
local MAX_LEN = 128

local function unhex(digits)
  return (gsub(digits, "%x%x", function(pair) return char(tonumber(pair, 16)) end))
end

_M.unhex = unhex

local function compact(canonical)
  if #canonical <= MAX_LEN then return canonical end
  return "d" .. unhex(sha256(canonical))
end

_M.compact = compact

-- The canonical form of the parts of an identity: the only one, or all together.
function _M.canonical(parts)
  if #parts == 1 then return compact(parts[1]) end
  local joined = {}
  for n = 1, #parts do
    local part = compact(parts[n])
    joined[n] = char(#part) .. part
  end
  return compact("t" .. concat(joined))
end

-- The bytes that stand for themselves in names.
local PLAIN = span.set "[%w%-._:@/+=]"

local function escaped(letter)
  return format("%%%02x", byte(letter))
end

-- A text of bytes, with all others escaped.
local function escape(content)
  if span.length(content, PLAIN) == #content then return content end
  return (gsub(content, "[^%w%-._:@/+=]", escaped))
end

local function hexadecimals(letter)
  return format("%02x", byte(letter))
end

-- As RFC 5952 writes an address: the first of the longest runs of zeros is left out.
local function v6(octets)
  local groups, best, best_length = {}, 0, 1
  for n = 1, 8 do groups[n] = byte(octets, 2 * n - 1) * 256 + byte(octets, 2 * n) end
  local n = 1
  while n <= 8 do
    local stop = n
    while stop <= 8 and groups[stop] == 0 do stop = stop + 1 end
    if stop - n > best_length then best, best_length = n, stop - n end
    n = stop + 1
  end
  local function written(first, last)
    local texts = {}
    for place = first, last do texts[#texts + 1] = format("%x", groups[place]) end
    return concat(texts, ":")
  end
  if best == 0 then return written(1, 8) end
  return written(1, best - 1) .. "::" .. written(best + best_length, 8)
end

_M.v6 = v6

local text

local function tuple(content)
  local parts, at = {}, 1
  while at <= #content do
    local length = byte(content, at)
    parts[#parts + 1] = text(sub(content, at + 1, at + length))
    at = at + 1 + length
  end
  return "(" .. concat(parts, ",") .. ")"
end

-- The identity as it stands in names.
function text(canonical)
  local kind, content = byte(canonical), sub(canonical, 2)
  if kind == 98 then return "=" .. escape(content) end
  if kind == 4 then return format("%d.%d.%d.%d", byte(content, 1, 4)) end
  if kind == 6 then
    local octets = sub(content, 2)
    return v6(octets .. string.rep("\0", 16 - #octets)) .. "/" .. byte(content)
  end
  if kind == 0 then return "all" end
  if kind == 1 then return "none" end
  if kind == 100 then return "d" .. gsub(content, ".", hexadecimals) end
  return tuple(content)
end

_M.text = text

return _M
