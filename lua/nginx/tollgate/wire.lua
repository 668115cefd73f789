-- Redis's wire, as far as it is needed here: commands of texts, and a reply that is a text, a word or an error.

local byte, find, sub = string.byte, string.find, string.sub
local concat, tonumber = table.concat, tonumber

local _M = {}

-- Replies are shorter, with 32 charges too.
local MOST = 4096

local BULK, ERROR, WORD = 36, 45, 43

-- A text as a part of a command.
function _M.part(text)
  return "$" .. #text .. "\r\n" .. text .. "\r\n"
end

-- A command of these texts.
function _M.command(...)
  local words = { ... }
  local parts = { "*" .. #words .. "\r\n" }
  for n = 1, #words do parts[n + 1] = _M.part(words[n]) end
  return concat(parts)
end

-- The reply in these bytes; false and the words if it is an error; nothing and the reason if it is of another kind; nothing alone if
-- it is not whole.
function _M.parse(bytes)
  local kind, last = byte(bytes, 1), find(bytes, "\r\n", 1, true)
  if not last then return nil, #bytes >= MOST and "a long reply" or nil end
  if kind == BULK then
    local length = tonumber(sub(bytes, 2, last - 1))
    if not length or length < 0 or length > MOST then return nil, "an unexpected reply" end
    local ends = last + 1 + length
    if #bytes < ends + 2 then return nil end
    if #bytes > ends + 2 then return nil, "more than one reply" end
    return sub(bytes, last + 2, ends)
  end
  if #bytes > last + 1 then return nil, "more than one reply" end
  if kind == WORD then return sub(bytes, 2, last - 1) end
  if kind == ERROR then return false, sub(bytes, 2, last - 1) end
  return nil, "an unexpected reply"
end

local parse = _M.parse

-- The reply that comes over a socket, as `parse` tells it.
function _M.read(socket)
  local bytes, why = socket:receiveany(MOST)
  if not bytes then return nil, why end
  local reply
  reply, why = parse(bytes)
  while reply == nil and not why do
    local more
    more, why = socket:receiveany(MOST)
    if not more then return nil, why end
    bytes = bytes .. more
    reply, why = parse(bytes)
  end
  return reply, why
end

return _M
