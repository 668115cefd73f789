-- The combination of several values of one name: none, one that may be repeated, or several that differ, about which readers
-- differ as well.

local _M = {}

_M.SEVERAL = "it has several values"

-- A collector of values. `result` gives the one value, or nothing and the reason if they differ.
function _M.new()
  local first, differ
  local function add(value)
    if first == nil then
      first = value
    elseif first ~= value then
      differ = true
    end
  end
  local function result()
    if differ then return nil, _M.SEVERAL end
    if first == nil or first == "" then return nil end
    return first
  end
  return add, result
end

return _M
