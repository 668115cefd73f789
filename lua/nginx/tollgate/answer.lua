-- The words to callers: the answer to a refused request, and the RateLimit fields (draft 11) of every answer.

local problem = require "tollgate.problem"
local reply = require "tollgate.reply"
local told = require "tollgate.told"

local ceil, concat, max, min = math.ceil, table.concat, math.max, math.min
local format = string.format
local add_header = require("ngx.resp").add_header
local of, CHARGE, RETRY_AFTER = reply.of, reply.CHARGE, reply.RETRY_AFTER
local tobit = require("bit").tobit
local ngx = ngx

local _M = {}

-- The verdict of a charge that passes.
local PASSES = 1

-- The largest integer that a structured field can say.
local MOST = 999999999999999

local function integer(number)
  if number < 2147483648 then return tobit(number) .. "" end
  return format("%.0f", min(number, MOST))
end

local function seconds(us)
  return ceil(us / 1000000)
end

-- Ends the request with this answer: it never reaches the service.
function _M.refuse(status, body)
  local header = ngx.header
  ngx.status = status
  header["Content-Type"] = "application/problem+json"
  header["Content-Length"] = #body
  header["Cache-Control"] = "no-store"
  ngx.print(body)
  return ngx.exit(ngx.HTTP_OK)
end

-- The members of the field about quotas, of all charges that may refuse a request.
local function members(charges)
  if charges.members then return charges.members end
  local found = {}
  for n = 1, #charges do
    local charge = charges[n]
    if charge.mode == "enforce" and not charge.ban then found[#found + 1] = charge.member end
  end
  return concat(found, ", ")
end

-- The two fields about the budgets that took part, by what the reply says; nothing if none of them may refuse a request. `told` is
-- the wait in Retry-After, if there is one.
function _M.fields(charges, read, told)
  local number = read[CHARGE]
  local tightest = charges[number]
  if not tightest then return nil end
  local verdict, remaining, reset, wait = of(read, number)
  if verdict == PASSES then return tightest.state .. integer(remaining) .. ";t=" .. integer(seconds(reset)), members(charges) end
  if wait < 0 then return tightest.state .. "0", members(charges) end
  return tightest.state .. "0;t=" .. integer(told or seconds(wait)), members(charges)
end

-- Lets the request pass. Its fields wait for the answer of the service.
function _M.admit(charges, read)
  told.decide(_M.fields(charges, read))
end

-- The answer to a denial.
function _M.deny(charges, read)
  local names, ban = {}, nil
  for n = 1, #charges do
    local charge = charges[n]
    if charge.mode == "enforce" and of(read, n) ~= PASSES then
      names[#names + 1] = charge.name
      ban = ban or charge.ban
    end
  end
  local retry_after = read[RETRY_AFTER]
  local never = retry_after < 0
  local told = not never and ban ~= 403 and max(retry_after, 1) or nil
  local state, policies = _M.fields(charges, read, told)
  local header = ngx.header
  if state then header["RateLimit"], header["RateLimit-Policy"] = state, policies end
  if told then header["Retry-After"] = integer(told) end
  if ban then return _M.refuse(ban, problem.BANNED[ban]) end
  return _M.refuse(429, problem.exceeded(names, never))
end

-- Adds the fields to the answer of the service. A redirected client should not hold back because of a budget here.
function _M.add_fields()
  local state, policies = told.fields()
  if not state then return end
  local status = ngx.status
  if status >= 300 and status < 400 and status ~= 304 then return end
  add_header("RateLimit", state)
  add_header("RateLimit-Policy", policies)
end

return _M
