-- Forms as axum reads them, in a query or in a body.

local reading = require "tollgate.reading"
local text = require "tollgate.text"

local find, gmatch, gsub, sub = string.find, string.gmatch, string.gsub, string.sub
local folded = reading.folded
local percent_decode, utf8_lossy, one_form = text.percent_decode, text.utf8_lossy, text.one_form

local _M = {}

local function decode(part)
  if find(part, "+", 1, true) then part = gsub(part, "+", " ") end
  return utf8_lossy(percent_decode(part))
end

local function name_of(part)
  local equals = find(part, "=", 1, true)
  return decode(equals and sub(part, 1, equals - 1) or part)
end

-- Calls `found` with each value of a name.
function _M.values(form, name, found)
  for pair in gmatch(form, "[^&]+") do
    if name_of(pair) == name then
      local equals = find(pair, "=", 1, true)
      found(one_form(decode(equals and sub(pair, equals + 1) or "")))
    end
  end
end

-- True if some service finds the name where these values are not, or cuts one of them: some split at semicolons as well.
function _M.is_elsewhere(form, name)
  local wanted = folded(name)
  for pair in gmatch(form, "[^&]+") do
    local is_cut = find(pair, ";", 1, true)
    for part in gmatch(pair, "[^;]+") do
      local found = name_of(part)
      if folded(found) == wanted and (is_cut or found ~= name) then return true end
    end
  end
  return false
end

return _M
