-- The head of the request that nginx is about to pass on, as it was sent. Each part is looked for when it is asked for.

local client = require "tollgate.client"
local path = require "tollgate.path"

local rawget, setmetatable, type = rawget, setmetatable, type
local ngx = ngx
local get_headers, get_method = ngx.req.get_headers, ngx.req.get_method
local var = ngx.var

local _M = {}
local METHODS = { __index = _M }

local NONE = {}

-- The request; nothing if its target is not a path.
function _M.new(ignore_case)
  local target = var.request_uri
  local raw, query = path.split(target)
  if not raw then return nil end
  local form, tidied = path.forms(raw, ignore_case)
  return setmetatable({
    method = get_method(), raw = raw, query = query, form = form, tidied = tidied,
  }, METHODS)
end

-- The lines of a header field, in their order. `name` is in lower case.
function _M.lines(self, name)
  local headers = self.headers
  if not headers then
    headers = get_headers(0)
    self.headers = headers
  end
  local value = rawget(headers, name)
  if value == nil then return NONE end
  if type(value) == "table" then return value end
  return { value == true and "" or value }
end

-- The caller's address in bytes, by the rule of the configuration; nothing if the peer has none.
function _M.address(self, rule)
  local found = self.found
  if found == nil then
    local peer = var.binary_remote_addr
    found = (#peer == 4 or #peer == 16) and client.resolve(rule, peer, self)
    self.found = found
  end
  return found or nil
end

return _M
