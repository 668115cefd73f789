-- The words to callers: the answer to a refused request, and the RateLimit fields (draft 11) of every answer.

local problem = require "tollgate.problem"

local ceil, concat, max, min = math.ceil, table.concat, math.max, math.min
local format, type = string.format, type
local ngx = ngx

local _M = {}

-- The largest integer that a structured field can say.
local MOST = 999999999999999

local function integer(number)
  return format("%.0f", min(number, MOST))
end

local function seconds(us)
  return ceil(us / 1000000)
end

-- Ends the request with this answer: it never reaches the service.
function _M.refuse(status, body, fields)
  local header = ngx.header
  ngx.status = status
  header["Content-Type"] = "application/problem+json"
  header["Content-Length"] = #body
  header["Cache-Control"] = "no-store"
  if fields then
    for name, value in pairs(fields) do header[name] = value end
  end
  ngx.ctx.tollgate = nil
  ngx.print(body)
  return ngx.exit(ngx.HTTP_OK)
end

-- The two fields about the budgets that took part. `told` is the wait in Retry-After, if there is one.
function _M.fields(charges, decision, told)
  local tightest = charges[decision.charge]
  if not tightest then return nil end
  local verdict = decision[decision.charge]
  local state
  if verdict.passes then
    state = tightest.state .. integer(verdict.remaining) .. ";t=" .. integer(seconds(verdict.reset))
  elseif verdict.wait < 0 then
    state = tightest.state .. "0"
  else
    state = tightest.state .. "0;t=" .. integer(told or seconds(verdict.wait))
  end
  local members = {}
  for n = 1, #charges do
    local charge = charges[n]
    if charge.mode == "enforce" and not charge.ban then members[#members + 1] = charge.member end
  end
  return { ["RateLimit"] = state, ["RateLimit-Policy"] = concat(members, ", ") }
end

-- The answer to a denial.
function _M.deny(charges, decision)
  local names, ban = {}, nil
  for n = 1, #charges do
    local charge = charges[n]
    if charge.mode == "enforce" and not decision[n].passes then
      names[#names + 1] = charge.name
      ban = ban or charge.ban
    end
  end
  local never = decision.retry_after < 0
  local told = not never and ban ~= 403 and max(decision.retry_after, 1) or nil
  local fields = _M.fields(charges, decision, told) or {}
  if told then fields["Retry-After"] = integer(told) end
  if ban then return _M.refuse(ban, problem.BANNED[ban], fields) end
  return _M.refuse(429, problem.exceeded(names, never), fields)
end

local function append(header, name, value)
  local present = header[name]
  if present == nil then
    header[name] = value
  elseif type(present) == "table" then
    present[#present + 1] = value
    header[name] = present
  else
    header[name] = { present, value }
  end
end

-- Adds the fields to the answer of the service. A redirected client should not hold back because of a budget here.
function _M.append(fields)
  local status = ngx.status
  if status >= 300 and status < 400 and status ~= 304 then return end
  local header = ngx.header
  append(header, "RateLimit", fields["RateLimit"])
  append(header, "RateLimit-Policy", fields["RateLimit-Policy"])
end

return _M
