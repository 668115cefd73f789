-- The question to Redis: one round trip for each request, over connections that are kept, and an answer within a deadline.
--
-- A call whose outcome is unknown is never sent again, and its connection is closed: a late reply would answer the next request.
-- The wire is spoken here, since a general client takes as long for its tables as nginx for the rest of a request.

local breaker = require "tollgate.breaker"
local clock = require "tollgate.clock"
local wire = require "tollgate.wire"

local find, pairs, type = string.find, pairs, type
local error, max, setmetatable, tostring = error, math.max, setmetatable, tostring
local command, read = wire.command, wire.read
local ngx = ngx
local tcp, update_time = ngx.socket.tcp, ngx.update_time
local now = clock.seconds

local _M = {}
local METHODS = { __index = _M }

local KNOWN = {
  host = "string", port = "number", socket = "string", username = "string", password = "string", db = "number",
  tls = "boolean", tls_verify = "boolean", server_name = "string", deadline_ms = "number", pool_size = "number",
  keepalive_ms = "number",
}

-- The longest time of nginx's own timers.
local MOST = 2147483647

-- A client of the Redis that `options` name, with this script.
function _M.new(options, script)
  for name, value in pairs(options) do
    if not KNOWN[name] then error("tollgate: redis has no option " .. tostring(name)) end
    if type(value) ~= KNOWN[name] then error("tollgate: redis." .. name .. " is not a " .. KNOWN[name]) end
    local least = name == "db" and 0 or 1
    if type(value) == "number" and not (value >= least and value <= MOST) then
      error("tollgate: redis." .. name .. " is " .. value .. ", and has to be from " .. least .. " to " .. MOST)
    end
  end
  if options.socket and (options.host or options.port) then error("tollgate: redis has a socket or a host, not both") end
  local place = options.socket and "unix:" .. options.socket or (options.host or "127.0.0.1") .. ":" .. (options.port or 6379)
  local self = {
    host = options.socket and "unix:" .. options.socket or options.host or "127.0.0.1",
    port = not options.socket and (options.port or 6379) or nil,
    -- As the log names the server.
    place = place,
    options = options,
    script = script,
    deadline_ms = options.deadline_ms or 100,
    keepalive_ms = options.keepalive_ms or 60000,
    pool_size = options.pool_size or 64,
    connecting = {
      -- A kept connection is that of this user, to this database.
      pool = table.concat({ "tollgate", place, options.username or "", options.db or 0, tostring(options.tls) }, " "),
    },
    server_name = options.server_name or options.host,
  }
  self.breaker = breaker.new(self.deadline_ms / 1000)
  return setmetatable(self, METHODS)
end

-- Leaves the next step no more time than is left of all.
local function limit(socket, ends)
  update_time()
  socket:settimeout(max((ends - now()) * 1000, 1))
end

-- One command of a new connection.
local function tell(socket, ends, ...)
  limit(socket, ends)
  local done, why = socket:send(command(...))
  if done then done, why = read(socket) end
  return done, why and (...) .. ": " .. why
end

-- The beginning of a new connection.
local function greet(self, socket, ends)
  local options = self.options
  local done, why = true, nil
  if options.tls then
    limit(socket, ends)
    done, why = socket:sslhandshake(false, self.server_name, options.tls_verify ~= false)
    why = why and "TLS handshake: " .. why
  end
  if done and options.username then
    done, why = tell(socket, ends, "AUTH", options.username, options.password or "")
  elseif done and options.password then
    done, why = tell(socket, ends, "AUTH", options.password)
  end
  if done and options.db then done, why = tell(socket, ends, "SELECT", tostring(options.db)) end
  return done, why
end

local function connect(self, socket)
  if self.port then return socket:connect(self.host, self.port, self.connecting) end
  return socket:connect(self.host, self.connecting)
end

-- The reply to a question over this connection.
local function exchange(socket, question, begun, ends)
  if now() ~= begun then limit(socket, ends) end
  local reply
  local done, why = socket:send(question)
  if done then
    if now() ~= begun then limit(socket, ends) end
    reply, why = read(socket)
  end
  if reply == nil then return nil, "question: " .. why end
  return reply, why
end

local function ask(self, socket, question)
  -- nginx's clock stands still while requests are worked on: slow work before this question would be taken from its time.
  update_time()
  local begun = now()
  local ends = begun + self.deadline_ms / 1000
  socket:settimeout(self.deadline_ms)
  local done, why = connect(self, socket)
  if not done then return nil, "connection: " .. why end
  if socket:getreusedtimes() == 0 then
    done, why = greet(self, socket, ends)
    if not done then return done, why end
  end
  local reply
  reply, why = exchange(socket, question, begun, ends)
  -- This answer proves that the script did not run.
  if reply == false and find(why, "NOSCRIPT", 1, true) == 1 then
    done, why = tell(socket, ends, "SCRIPT", "LOAD", self.script)
    if not done then return done, why end
    reply, why = exchange(socket, question, begun, ends)
  end
  return reply, why
end

-- The reply to a question; or nothing, and why. An error of Redis is an answer.
function _M.decide(self, question)
  if not self.breaker:lets_ask() then return nil, "it did not answer before" end
  local socket = tcp()
  local reply, why = ask(self, socket, question)
  if reply == nil then
    self.breaker:failed()
    socket:close()
    return nil, why
  end
  self.breaker:answered()
  if not reply then
    socket:close()
    return nil, why
  end
  socket:setkeepalive(self.keepalive_ms, self.pool_size)
  return reply
end

return _M
