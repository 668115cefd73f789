-- The field Forwarded (RFC 7239), read from the right: a proxy appends to what the caller sent, and the caller may have sent an
-- opening quote.

local text = require "tollgate.text"

local byte, find, gsub, lower, match, sub = string.byte, string.find, string.gsub, string.lower, string.match, string.sub
local trim = text.trim

local _M = {}

local COMMA, QUOTE, SEMICOLON, BACKSLASH = 44, 34, 59, 92
local TOKEN = "^[%w!#$%%&'*+%-.^_`|~]+$"
-- RFC 7239 has colons and brackets in quotes only; many proxies do not.
local PLAIN = "^[%w!#$%%&'*+%-.^_`|~:%[%]]+$"

-- True if the byte stands behind an odd number of backslashes, of which the first may stand at `from`.
local function is_escaped(line, from, at)
  local first = at
  while first > from and byte(line, first - 1) == BACKSLASH do first = first - 1 end
  return (at - first) % 2 == 1
end

-- The last comma up to a place that is not within quotes, as seen from there.
local function last_comma(line, to)
  local quoted = false
  for at = to, 1, -1 do
    local letter = byte(line, at)
    if letter == QUOTE then
      quoted = not quoted or is_escaped(line, 1, at)
    elseif letter == COMMA and not quoted then
      return at
    end
  end
end

-- The text up to the closing quote, and what is behind it; nothing if there is none. The opening quote comes first.
local function unquote(quoted)
  for at = 2, #quoted do
    if byte(quoted, at) == QUOTE and not is_escaped(quoted, 2, at) then
      local value = gsub(sub(quoted, 2, at - 1), "\\(.)", "%1")
      return value, sub(quoted, at + 1)
    end
  end
end

local function plain(written)
  local ends = find(written, "[; \t]") or #written + 1
  local value = sub(written, 1, ends - 1)
  if find(value, PLAIN) then return value, sub(written, ends) end
end

-- The value of the one `for` of an element; nothing if the element is not well-formed to its end.
local function forwarded_for(element)
  local found
  local rest = trim(element)
  while rest ~= "" do
    if byte(rest) == SEMICOLON then
      rest = trim(sub(rest, 2))
    else
      local name, written = match(rest, "^([^=]*)=(.*)$")
      if not name or not find(name, TOKEN) then return nil end
      local value, behind
      if byte(written) == QUOTE then
        value, behind = unquote(written)
      else
        value, behind = plain(written)
      end
      if not value then return nil end
      if lower(name) == "for" then
        if found then return nil end
        found = value
      end
      rest = trim(behind)
      if rest ~= "" and byte(rest) ~= SEMICOLON then return nil end
    end
  end
  return found
end

-- Gives the values of a line one by one, the last one first; false for an element without one. No element is empty, as of every
-- list in HTTP.
function _M.from_the_right(line)
  local left = #line
  return function()
    while left do
      local comma = last_comma(line, left)
      local element = sub(line, (comma or 0) + 1, left)
      left = comma and comma - 1
      if trim(element) ~= "" then return forwarded_for(element) or false end
    end
  end
end

return _M
