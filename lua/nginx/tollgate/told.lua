-- The decision about a request, in nginx's variable $tollgate. It outlives an internal redirect, as ngx.ctx does not, so that a
-- request is charged once wherever nginx sends it.

local byte, find, sub = string.byte, string.find, string.sub
local pcall = pcall
local ngx = ngx
local var = ngx.var

local _M = {}

-- The request was asked about, and nothing is told about its budgets.
local NOTHING = "-"
local QUOTE = 34

local function remember(told)
  var.tollgate = told
end

local kept = false

-- Says whether nginx.conf makes the variable, without which a request that goes on elsewhere would be charged again, and room for it.
-- What it makes for one request it makes for all.
function _M.is_kept()
  if not kept then
    local told = var.tollgate
    kept = told ~= nil and pcall(remember, told)
  end
  return kept
end

-- True if the request has been asked about: before an internal redirect.
function _M.is_decided()
  return var.tollgate ~= ""
end

-- Remembers the decision, and the two fields if there are any.
function _M.decide(state, policies)
  var.tollgate = state and state .. "\n" .. policies or NOTHING
end

-- The two fields; nothing if there are none.
function _M.fields()
  local told = var.tollgate
  if not told or byte(told, 1) ~= QUOTE then return nil end
  local ends = find(told, "\n", 1, true)
  return sub(told, 1, ends - 1), sub(told, ends + 1)
end

return _M
