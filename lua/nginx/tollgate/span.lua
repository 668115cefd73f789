-- The length of the part of a text that begins it and has bytes of one set only.
--
-- The C library looks: a pattern of Lua, or a loop, would end the compiler's way through a request.

local ffi = require "ffi"

local C = ffi.C
local char, concat, find, tonumber = string.char, table.concat, string.find, tonumber

ffi.cdef "size_t strspn(const char *text, const char *set);"

local _M = {}

-- A set, of the bytes that this class of Lua's patterns has. The zero byte is in no set.
function _M.set(class)
  local members = {}
  for number = 1, 255 do
    if find(char(number), class) then members[#members + 1] = char(number) end
  end
  return concat(members)
end

function _M.length(text, set)
  local length = tonumber(C.strspn(text, set))
  return length
end

return _M
