-- The combination of several values of one name: none, one that may be repeated, or several that differ, about which readers
-- differ as well.

local text = require "tollgate.text"

local gsub, lower = string.gsub, string.lower
local trim = text.trim

local _M = {}

_M.SEVERAL = "it has several values"
_M.ELSEWHERE = "services read it in different ways"

-- A name as all services see it that take several for one: some ignore case, and PHP makes underscores of dots, blanks and brackets.
function _M.folded(name)
  return lower((gsub(trim(name), "[. %[]", "_")))
end

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
