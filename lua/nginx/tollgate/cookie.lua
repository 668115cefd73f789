-- Cookies as their readers see them: some decode names and values, and some remove quotes.

local reading = require "tollgate.reading"
local text = require "tollgate.text"

local find, gmatch, gsub, match, sub = string.find, string.gmatch, string.gsub, string.match, string.sub
local folded = reading.folded
local trim, without_end, percent_decode, is_utf8 = text.trim, text.without_end, text.percent_decode, text.is_utf8

local _M = {}

local function plain(value)
  value = percent_decode(value)
  local unquoted = match(value, '^"*([^"].*)$')
  if not unquoted then return value == '""' and "" or value end
  return without_end(unquoted, 34)
end

local function is_called(written, name)
  return written == name or (find(written, "%", 1, true) and percent_decode(written) == name)
end

-- True if some reader finds the cookie where it is not, or cuts it: some end a value at a blank, and some at a comma.
local function is_elsewhere(pair, name, wanted)
  pair = gsub(trim(pair), "[ \t]*=[ \t]*", "=")
  local is_cut = find(pair, "[ \t,]")
  for part in gmatch(pair, "[^ \t,]+") do
    local equals = find(part, "=", 1, true)
    local found = equals and sub(part, 1, equals - 1)
    if found and folded(found) == wanted and (is_cut or not is_called(found, name)) then return true end
  end
  return false
end

-- The value of a cookie in these lines; nothing and perhaps a reason if there is not one that all readers see.
function _M.value(lines, name)
  local add, result = reading.new()
  local is_text, is_quoted, is_encoded_twice, are_text = true, false, false, true
  local is_cut, wanted = false, folded(name)
  for n = 1, #lines do are_text = are_text and not find(lines[n], "[^\t\32-\126]") end
  -- Readers join the lines. Some see no cookie between the quotes of another one's value.
  local is_open = false
  for n = 1, #lines do
    local line = lines[n]
    for pair in gmatch(line, "[^;]+") do
      local begins_open = is_open
      local _, quotes = gsub(pair, '"', "")
      is_open = is_open ~= (quotes % 2 == 1)
      is_cut = is_cut or is_elsewhere(pair, name, wanted)
      local equals = find(pair, "=", 1, true)
      if equals and is_called(trim(sub(pair, 1, equals - 1)), name) then
        -- Python reads \141 as a.
        is_cut = is_cut or find(pair, "\\", equals, true)
        local value = plain(trim(sub(pair, equals + 1)))
        is_text = is_text and are_text and is_utf8(value)
        is_quoted = is_quoted or begins_open
        is_encoded_twice = is_encoded_twice or plain(value) ~= value
        add(value)
      end
    end
  end
  if not is_text then return nil, "it is not text" end
  if is_quoted then return nil, "it stands between quotes" end
  if is_encoded_twice then return nil, "it is encoded twice" end
  if is_cut then return nil, reading.ELSEWHERE end
  return result()
end

return _M
