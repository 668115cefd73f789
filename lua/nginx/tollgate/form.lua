-- Forms as axum reads them, in a query or in a body.

local text = require "tollgate.text"

local byte, find, gmatch, gsub, sub = string.byte, string.find, string.gmatch, string.gsub, string.sub
local percent_decode, utf8_lossy, one_form = text.percent_decode, text.utf8_lossy, text.one_form

local _M = {}

local function decode(part)
  if find(part, "+", 1, true) then part = gsub(part, "+", " ") end
  return utf8_lossy(percent_decode(part))
end

-- Calls `found` with each value of a name.
function _M.values(form, name, found)
  for pair in gmatch(form, "[^&]+") do
    local equals = find(pair, "=", 1, true)
    local written = equals and sub(pair, 1, equals - 1) or pair
    if decode(written) == name then found(one_form(decode(equals and sub(pair, equals + 1) or ""))) end
  end
end

return _M
