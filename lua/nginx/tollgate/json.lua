-- One field of a JSON document. Readers that build tables take the last of two members of one name without a word, and numbers
-- for what a double holds; this one sees both.

local text = require "tollgate.text"
local reading = require "tollgate.reading"

local byte, char, find, format, gsub = string.byte, string.char, string.find, string.format, string.gsub
local lower, match, sub = string.lower, string.match, string.sub
local floor, abs, tonumber = math.floor, math.abs, tonumber
local concat = table.concat
local is_utf8, one_form = text.is_utf8, text.one_form
local error, pcall = error, pcall

local _M = {}

local SEVERAL, ELSEWHERE = reading.SEVERAL, reading.ELSEWHERE
local LIST = "there is a list where its name should be"
local NEITHER = "it is neither a text nor a number"
local NOT_WHOLE = "it is not a whole number that all readers represent"

-- Values may lie this deep within each other.
local DEEPEST = 127
-- Below this, readers of floating point represent each whole number exactly.
local EXACT = 9007199254740992

local MALFORMED = {}

local function fail()
  error(MALFORMED, 0)
end

local function skip_blanks(document, at)
  return find(document, "[^ \t\n\r]", at) or #document + 1
end

local ESCAPES = { ['"'] = '"', ["\\"] = "\\", ["/"] = "/", b = "\b", f = "\f", n = "\n", r = "\r", t = "\t" }

local function utf8(code)
  if code < 0x80 then return char(code) end
  if code < 0x800 then return char(0xc0 + floor(code / 64), 0x80 + code % 64) end
  if code < 0x10000 then
    return char(0xe0 + floor(code / 4096), 0x80 + floor(code / 64) % 64, 0x80 + code % 64)
  end
  return char(0xf0 + floor(code / 262144), 0x80 + floor(code / 4096) % 64, 0x80 + floor(code / 64) % 64, 0x80 + code % 64)
end

-- The text that begins behind the quote at `at`, and the place behind it.
local function string_at(document, at)
  local start, parts = at + 1, nil
  while true do
    local stop = find(document, '["\\%z\1-\31]', start) or fail()
    local sign = byte(document, stop)
    if sign == 34 then
      local rest = sub(document, start, stop - 1)
      local whole = rest
      if parts then
        parts[#parts + 1] = rest
        whole = concat(parts)
      end
      if not is_utf8(whole) then fail() end
      return whole, stop + 1
    elseif sign ~= 92 then
      fail()
    end
    parts = parts or {}
    parts[#parts + 1] = sub(document, start, stop - 1)
    local escape = sub(document, stop + 1, stop + 1)
    if escape == "u" then
      local code = tonumber(match(document, "^%x%x%x%x", stop + 2) or fail(), 16)
      stop = stop + 6
      if code >= 0xd800 and code <= 0xdfff then
        local low = match(document, "^\\u(%x%x%x%x)", stop)
        low = code <= 0xdbff and low and tonumber(low, 16) or fail()
        if low < 0xdc00 or low > 0xdfff then fail() end
        code = 0x10000 + (code - 0xd800) * 1024 + low - 0xdc00
        stop = stop + 6
      end
      parts[#parts + 1] = utf8(code)
      start = stop
    else
      parts[#parts + 1] = ESCAPES[escape] or fail()
      start = stop + 2
    end
  end
end

local function number_at(document, at)
  local digits = match(document, "^-?0", at) or match(document, "^-?[1-9]%d*", at) or fail()
  -- A zero has no digits behind it.
  local stop = at + #digits
  if find(document, "^%d", stop) then fail() end
  local fraction = match(document, "^%.%d+", stop) or ""
  stop = stop + #fraction
  local power = match(document, "^[eE][+-]?%d+", stop) or ""
  stop = stop + #power
  if find(document, "^[.eE]", stop) then fail() end
  return digits, digits .. fraction .. power, stop
end

-- The digits of a whole number, of which readers of floating point see as much; or a reason.
local function whole(digits, written)
  local value = tonumber(written)
  if abs(value) == math.huge then fail() end
  if abs(value) >= EXACT or value ~= floor(value) then return nil, NOT_WHOLE end
  return value == 0 and "0" or format("%.0f", value)
end

-- Strings and values that are not looked for are not read: readers of one field do not look whether they are text, nor how deep
-- they lie.
local function skip_string(document, at)
  local start = at + 1
  while true do
    local stop = find(document, '["\\%z\1-\31]', start) or fail()
    local sign = byte(document, stop)
    if sign == 34 then return stop + 1 end
    if sign ~= 92 then fail() end
    local escape = sub(document, stop + 1, stop + 1)
    if escape == "u" then
      if not find(document, "^%x%x%x%x", stop + 2) then fail() end
      start = stop + 6
    else
      if not ESCAPES[escape] then fail() end
      start = stop + 2
    end
  end
end

-- The place behind `true`, `false`, `null` or a number; and the number, if it is one.
local function literal_at(document, at)
  local word = match(document, "^%l+", at)
  if word == "true" or word == "false" or word == "null" then return at + #word end
  local digits, written, behind = number_at(document, at)
  return behind, digits, written
end

-- The place of a member's value, if a member begins at `at`.
local function skip_name(document, at)
  if byte(document, at) ~= 34 then fail() end
  at = skip_blanks(document, skip_string(document, at))
  if byte(document, at) ~= 58 then fail() end
  return skip_blanks(document, at + 1)
end

-- The place behind a value. It takes no room on the stack, however deep the value is.
local function skip_value(document, at)
  local closers, depth = {}, 0
  while true do
    local sign, has_ended = byte(document, at), true
    if sign == 123 or sign == 91 then
      local closer = sign + 2
      at = skip_blanks(document, at + 1)
      if byte(document, at) == closer then
        at = at + 1
      else
        depth, has_ended = depth + 1, false
        closers[depth] = closer
        if closer == 125 then at = skip_name(document, at) end
      end
    elseif sign == 34 then
      at = skip_string(document, at)
    else
      at = literal_at(document, at)
    end
    while has_ended do
      if depth == 0 then return at end
      at = skip_blanks(document, at)
      sign = byte(document, at)
      if sign == closers[depth] then
        depth, at = depth - 1, at + 1
      elseif sign == 44 then
        at, has_ended = skip_blanks(document, at + 1), false
        if closers[depth] == 125 then at = skip_name(document, at) end
      else
        fail()
      end
    end
  end
end

local value_at

-- A name as readers see it that do not tell capital letters from small ones. To those of Go two letters beyond ASCII are small ones.
local function folded(name)
  if find(name, "[\197\226]") then name = gsub(gsub(name, "\197\191", "s"), "\226\132\170", "k") end
  return lower(name)
end

-- The path of a value that is read as a whole.
local WHOLE = {}

-- A member's name or an element's number leads on, if it is the next step of the path.
local function object_at(document, at, path, depth)
  local found, why, was_found
  at = skip_blanks(document, at + 1)
  if byte(document, at) == 125 then return nil, nil, at + 1 end
  while true do
    if byte(document, at) ~= 34 then fail() end
    local name
    name, at = string_at(document, at)
    at = skip_blanks(document, at)
    if byte(document, at) ~= 58 then fail() end
    at = skip_blanks(document, at + 1)
    if path[depth] == name then
      local value, reason
      value, reason, at = value_at(document, at, path, depth + 1)
      if was_found and (found ~= value or why ~= reason) then
        found, why = nil, SEVERAL
      else
        found, why, was_found = value, reason, true
      end
    elseif path == WHOLE then
      local _
      _, _, at = value_at(document, at, path, depth + 1)
    else
      if folded(path[depth]) == folded(name) then found, why, was_found = nil, ELSEWHERE, true end
      at = skip_value(document, at)
    end
    at = skip_blanks(document, at)
    local sign = byte(document, at)
    if sign == 125 then return found, why, at + 1 end
    if sign ~= 44 then fail() end
    at = skip_blanks(document, at + 1)
  end
end

local function list_at(document, at, path, depth)
  local found, why
  local wanted = path ~= WHOLE and tonumber(match(path[depth], "^%+?(%d+)$"))
  at = skip_blanks(document, at + 1)
  if byte(document, at) == 93 then return nil, nil, at + 1 end
  local index = 0
  while true do
    if path == WHOLE then
      local _
      _, _, at = value_at(document, at, path, depth + 1)
    elseif index == wanted then
      found, why, at = value_at(document, at, path, depth + 1)
    else
      at = skip_value(document, at)
      if not wanted then why = LIST end
    end
    index = index + 1
    at = skip_blanks(document, at)
    local sign = byte(document, at)
    if sign == 93 then return found, why, at + 1 end
    if sign ~= 44 then fail() end
    at = skip_blanks(document, at + 1)
  end
end

-- The value at `at`: the identity at the end of the path, or a reason why there is none; and the place behind the value.
function value_at(document, at, path, depth)
  local is_wanted = path[depth] == nil
  local sign = byte(document, at)
  if sign == 123 or sign == 91 then
    if depth > DEEPEST then fail() end
    local container = sign == 123 and object_at or list_at
    local found, why, behind = container(document, at, is_wanted and WHOLE or path, depth)
    if is_wanted then return nil, NEITHER, behind end
    return found, why, behind
  elseif sign == 34 then
    local value, behind = string_at(document, at)
    if is_wanted and value ~= "" then return one_form(value), nil, behind end
    return nil, nil, behind
  end
  local behind, digits, written = literal_at(document, at)
  if not digits then
    return nil, is_wanted and byte(document, at) ~= 110 and NEITHER or nil, behind
  end
  -- A number that no reader represents is a flaw of the document.
  local value, why = whole(digits, written)
  if is_wanted then return value, why, behind end
  return nil, nil, behind
end

local function read(document, path)
  local found, why, behind = value_at(document, skip_blanks(document, 1), path, 1)
  if skip_blanks(document, behind) <= #document then fail() end
  return found, why
end

-- The field at a path, a list of names; or nothing, perhaps with a reason. The third value is false if
-- the text is not a document.
function _M.field(document, path)
  local fine, found, why = pcall(read, document, path)
  if fine then return found, why, true end
  if found ~= MALFORMED then error(found, 0) end
  return nil, nil, false
end

return _M
