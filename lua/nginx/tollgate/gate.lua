-- The gate of one nginx: what stands between the head of a request and its way on.

local answer = require "tollgate.answer"
local config = require "tollgate.config"
local health = require "tollgate.health"
local plan = require "tollgate.plan"
local problem = require "tollgate.problem"
local question = require "tollgate.question"
local redis = require "tollgate.redis"
local reply = require "tollgate.reply"
local told = require "tollgate.told"

local error, format, gsub, pairs, setmetatable, tostring = error, string.format, string.gsub, pairs, setmetatable, tostring
local byte, type = string.byte, type
local ngx = ngx

local _M = {}
local METHODS = { __index = _M }

local OUTCOME, CHARGE = reply.OUTCOME, reply.CHARGE
local ADMITTED, DENIED = 1, 0

local OPTIONS = { file = "string", redis = "table" }

-- Reads the file and prepares the connections.
function _M.new(options)
  for name, value in pairs(options) do
    if not OPTIONS[name] then error("tollgate: there is no option " .. tostring(name)) end
    if type(value) ~= OPTIONS[name] then error("tollgate: " .. name .. " is not a " .. OPTIONS[name]) end
  end
  if not options.file then error("tollgate: no file is named, as in file = \"/etc/tollgate/nginx.json\"") end
  local read = config.read(options.file)
  local sha = gsub(ngx.sha1_bin(read.script), ".", function(letter) return format("%02x", byte(letter)) end)
  local server = redis.new(options.redis or {}, read.script)
  return setmetatable({
    config = read,
    redis = server,
    question = question.new(sha),
    health = health.new(server.place),
  }, METHODS)
end

local function undecided(denies)
  if denies then return answer.refuse(503, problem.UNDECIDED) end
  told.decide()
end

-- Lets the request pass, or answers it.
function _M.access(self)
  if not told.is_kept() then
    error("tollgate: nginx.conf does not have the two `map` lines about $tollgate, which README.md shows: no request is decided", 0)
  end
  local charges, names, denies = plan.of_request(self.config)
  if not charges then return answer.refuse(names, denies) end
  local count = #charges
  if count == 0 then return end
  local text, why = self.redis:decide(question.of(self.question, charges, names))
  local read = text and reply.read(text, count)
  if not read then
    self.health:failed(why or "the reply is not one of the script")
    return undecided(denies)
  end
  self.health:decided()
  local outcome = read[OUTCOME]
  if outcome ~= ADMITTED and outcome ~= DENIED then
    self.health:met_stranger(tostring(names[read[CHARGE]]))
    return undecided(denies)
  end
  if outcome == DENIED then return answer.deny(charges, read) end
  answer.admit(charges, read)
end

return _M
