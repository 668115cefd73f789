-- The question to the script: see "The decide form" in lua/README.md.

local calendar = require "tollgate.calendar"
local wire = require "tollgate.wire"

local concat = table.concat
local part = wire.part

local _M = {}

-- The beginning of the questions to a script. They are made once, but for the names and the charges.
function _M.new(sha)
  local asking = part("EVALSHA") .. part(sha)
  return { one = "*5\r\n" .. asking .. part("1") .. "$", asking = asking }
end

-- A charge as a part of a question, which is the same in each.
_M.charge = part

local function asked(charge)
  if charge.starts then return calendar.asked(charge) end
  return charge.asked
end

-- The bytes of the question about charges to the states of these names.
function _M.of(self, charges, names)
  local count = #charges
  if count == 1 then
    local name = names[1]
    return self.one .. #name .. "\r\n" .. name .. "\r\n" .. asked(charges[1])
  end
  local parts = { "*" .. 3 + 2 * count .. "\r\n" .. self.asking .. part(count .. "") }
  for n = 1, count do
    parts[1 + n], parts[1 + count + n] = part(names[n]), asked(charges[n])
  end
  return concat(parts)
end

return _M
