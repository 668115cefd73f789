-- The head of the request that nginx is about to pass on, as it was sent.

local client = require "tollgate.client"
local path = require "tollgate.path"

local sub = string.sub
local rawget, setmetatable, type = rawget, setmetatable, type
local ngx = ngx
local get_headers, get_method = ngx.req.get_headers, ngx.req.get_method
local var = ngx.var

local _M = {}
local METHODS = { __index = _M }

local NONE = {}

-- The request; nothing if its target is not a path.
function _M.new(ignore_case)
  local target, method = var.request_uri, get_method()
  local length = path.plain_length(target, ignore_case)
  if length then
    local raw = sub(target, 1, length)
    local plain = { method = method, raw = raw, query = #target > length and sub(target, length + 2) or nil, form = raw, is_plain = true }
    setmetatable(plain, METHODS)
    return plain
  end
  local raw, query = path.split(target)
  if not raw then return nil end
  local form, others = path.forms(raw, ignore_case)
  return setmetatable({
    method = method, raw = raw, query = query, form = form, others = others,
  }, METHODS)
end

-- The header fields, which are looked for only if one of them counts.
local function headers_of(self)
  local headers = self.headers
  if not headers then
    headers = get_headers(0)
    self.headers = headers
  end
  return headers
end

-- The first line of a header field; nothing if there is none. `name` is in lower case.
function _M.line(self, name)
  local value = rawget(headers_of(self), name)
  if type(value) == "table" then value = value[1] end
  if value == true then return "" end
  return value
end

-- True if a header field has several lines.
function _M.is_doubled(self, name)
  return type(rawget(headers_of(self), name)) == "table"
end

-- The lines of a header field, in their order. `name` is in lower case.
function _M.lines(self, name)
  local value = rawget(headers_of(self), name)
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
