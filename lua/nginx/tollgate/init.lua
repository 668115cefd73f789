-- Tollgate in nginx: the budgets of your Rust services, asked from Redis before a request is passed on. README.md beside this
-- folder shows a whole nginx.conf.
--
--   init_by_lua_block {
--     require("tollgate").start { file = "/etc/tollgate/nginx.json", redis = { host = "10.0.0.7" } }
--   }
--   access_by_lua_block { require("tollgate").access() }
--   header_filter_by_lua_block { require("tollgate").fields() }

local answer = require "tollgate.answer"
local gate = require "tollgate.gate"

local error = error
local opt = require("jit").opt

local _M = { new = gate.new }

local the_gate

-- The way of a request has more constants than LuaJIT lets a trace have by itself (500). It would be given up midway, and tried again
-- and again: each time for as much as twenty requests.
local CONSTANTS = "maxirconst=2000"

-- Makes the gate of this nginx. An error says what is wrong, and nginx does not start; a reload leaves all as it was.
function _M.start(options)
  the_gate = gate.new(options)
  -- Where LuaJIT has no compiler there are no options.
  if opt then opt.start(CONSTANTS) end
end

-- Lets the request pass, or answers it.
function _M.access()
  if not the_gate then error("tollgate: start has not been called: see init_by_lua_block") end
  return the_gate:access()
end

-- Adds the RateLimit fields to an answer.
function _M.fields()
  return answer.add_fields()
end

return _M
