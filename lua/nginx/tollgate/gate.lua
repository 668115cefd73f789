-- The gate of one nginx: what stands between the head of a request and its way on.

local answer = require "tollgate.answer"
local config = require "tollgate.config"
local health = require "tollgate.health"
local path = require "tollgate.path"
local plan = require "tollgate.plan"
local problem = require "tollgate.problem"
local redis = require "tollgate.redis"
local reply = require "tollgate.reply"
local request = require "tollgate.request"

local error, format, gsub, pairs, setmetatable, tostring = error, string.format, string.gsub, pairs, setmetatable, tostring
local byte, type = string.byte, type
local ngx = ngx

-- As in redis.lua: these functions wait for Redis.
jit.off(true, true)

local _M = {}
local METHODS = { __index = _M }

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
  return setmetatable({
    config = read,
    redis = redis.new(options.redis or {}, read.script, sha),
    health = health.new(),
  }, METHODS)
end

-- The reason why services read the request in different ways; nothing if they do not.
local function flaw(self, asked)
  local settings = self.config
  if not settings.allow_ambiguous_paths then
    local what = path.ambiguity(asked.raw)
    if what then return "The path has " .. what .. ", and services read such paths in different ways." end
  end
  local headers = settings.key_headers
  for n = 1, #headers do
    if #asked:lines(headers[n]) > 1 then return "The field " .. headers[n] .. " is a key, and stands twice." end
  end
end

local function undecided(self, why, denies)
  self.health:failed(why)
  if denies then return answer.refuse(503, problem.UNDECIDED) end
end

-- Lets the request pass, or answers it.
function _M.access(self)
  -- The question about the main request has been asked.
  if ngx.is_subrequest then return end
  local settings = self.config
  local asked = request.new(settings.ignore_path_case)
  if not asked then return answer.refuse(400, problem.ambiguous("The target is not a path.")) end
  local why = flaw(self, asked)
  if why then return answer.refuse(400, problem.ambiguous(why)) end
  local charges, names, words, denies = plan.of(asked, settings)
  if not charges then return answer.refuse(names, words) end
  local count = #charges
  if count == 0 then return end
  local text, problem_with_redis = self.redis:decide(names, words)
  if not text then return undecided(self, problem_with_redis, denies) end
  local decision = reply.read(text, count)
  if not decision or (decision.outcome ~= ADMITTED and decision.outcome ~= DENIED) then
    return undecided(self, decision and "the state " .. tostring(names[decision.charge]) .. " is not one of Tollgate's" or
      "the reply is not one of the script", denies)
  end
  self.health:decided()
  if decision.outcome == DENIED then return answer.deny(charges, decision) end
  ngx.ctx.tollgate = answer.fields(charges, decision)
end

-- Adds the RateLimit fields to the answer of the service.
function _M.fields()
  local fields = ngx.ctx.tollgate
  if fields then answer.append(fields) end
end

return _M
