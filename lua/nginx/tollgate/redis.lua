-- The question to Redis: one round trip for each request, over connections that are kept, and an answer within a deadline.
--
-- A call whose outcome is unknown is never sent again, and its connection is closed: a late reply would answer the next request.

local loaded, resty_redis = pcall(require, "resty.redis")
-- Debian's package has it under this name.
if not loaded then resty_redis = require "nginx.redis" end

local find, pairs, type, unpack = string.find, pairs, type, unpack
local error, max, setmetatable, tonumber, tostring = error, math.max, setmetatable, tonumber, tostring
local ngx = ngx
local now, update_time = ngx.now, ngx.update_time

-- The compiler records what leads to a socket and gives it up at each yield, over and over: without it a question takes half
-- the time.
jit.off(true, true)

local _M = {}
local METHODS = { __index = _M }

-- Version 0.27 leaves TLS to its user.
local KNOWS_TLS = tonumber(resty_redis._VERSION) >= 0.28

local KNOWN = {
  host = "string", port = "number", socket = "string", username = "string", password = "string", db = "number",
  tls = "boolean", tls_verify = "boolean", server_name = "string", deadline_ms = "number", pool_size = "number",
  keepalive_ms = "number",
}

-- A client of the Redis that `options` name, with this script.
function _M.new(options, script, sha)
  for name, value in pairs(options) do
    if not KNOWN[name] then error("tollgate: redis has no option " .. tostring(name)) end
    if type(value) ~= KNOWN[name] then error("tollgate: redis." .. name .. " is not a " .. KNOWN[name]) end
  end
  if options.socket and (options.host or options.port) then error("tollgate: redis has a socket or a host, not both") end
  local place = options.socket and "unix:" .. options.socket or (options.host or "127.0.0.1") .. ":" .. (options.port or 6379)
  local self = {
    host = options.socket and "unix:" .. options.socket or options.host or "127.0.0.1",
    port = not options.socket and (options.port or 6379) or nil,
    options = options,
    script = script,
    sha = sha,
    deadline = (options.deadline_ms or 100) / 1000,
    keepalive_ms = options.keepalive_ms or 60000,
    connecting = {
      -- A kept connection is that of this user, to this database.
      pool = table.concat({ "tollgate", place, options.username or "", options.db or 0, tostring(options.tls) }, " "),
      pool_size = options.pool_size or 64,
      ssl = options.tls,
      ssl_verify = options.tls_verify ~= false,
      server_name = options.server_name or options.host,
    },
  }
  return setmetatable(self, METHODS)
end

-- The time that is left, for the next step.
local function limit(connection, ends)
  update_time()
  connection:set_timeout(max((ends - now()) * 1000, 1))
end

local function greet(self, connection, ends)
  local options, connecting = self.options, self.connecting
  if options.tls and not KNOWS_TLS then
    local done, why = connection._sock:sslhandshake(false, connecting.server_name, connecting.ssl_verify)
    if not done then return nil, why end
  end
  if options.password then
    limit(connection, ends)
    local done, why
    if options.username then
      done, why = connection:auth(options.username, options.password)
    else
      done, why = connection:auth(options.password)
    end
    if not done then return nil, why end
  end
  if options.db then
    limit(connection, ends)
    local done, why = connection:select(options.db)
    if not done then return nil, why end
  end
  return true
end

local function connect(self, connection, ends)
  limit(connection, ends)
  local done, why
  if self.port then
    done, why = connection:connect(self.host, self.port, self.connecting)
  else
    done, why = connection:connect(self.host, self.connecting)
  end
  if not done then return nil, why end
  if connection:get_reused_times() == 0 then return greet(self, connection, ends) end
  return true
end

local function call(self, connection, ends, keys, charges)
  limit(connection, ends)
  local count = #keys
  if count == 1 then return connection:evalsha(self.sha, 1, keys[1], charges[1]) end
  local words = {}
  for n = 1, count do
    words[n], words[count + n] = keys[n], charges[n]
  end
  return connection:evalsha(self.sha, count, unpack(words, 1, 2 * count))
end

-- The reply about charges to these states; or nothing, and why.
function _M.decide(self, keys, charges)
  local connection, why = resty_redis:new()
  if not connection then return nil, why end
  update_time()
  local ends = now() + self.deadline
  local reply
  reply, why = connect(self, connection, ends)
  if reply then
    reply, why = call(self, connection, ends, keys, charges)
    -- This answer proves that the script did not run.
    if reply == false and find(why, "NOSCRIPT", 1, true) == 1 then
      limit(connection, ends)
      reply, why = connection:script("load", self.script)
      if reply then reply, why = call(self, connection, ends, keys, charges) end
    end
  end
  if not reply then
    connection:close()
    return nil, why
  end
  connection:set_keepalive(self.keepalive_ms, self.connecting.pool_size)
  return reply
end

return _M
