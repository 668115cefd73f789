-- The body of a request, as far as it is read before the decision.

local text = require "tollgate.text"

local lower, match = string.lower, string.match
local trim = text.trim
local open, pcall, tonumber = io.open, pcall, tonumber
local ngx = ngx
local read_body, body_data, body_file = ngx.req.read_body, ngx.req.get_body_data, ngx.req.get_body_file
local http_version = ngx.req.http_version

local _M = {}

local OTHER_KIND = "the body is neither a form nor JSON by its content type"
local TOO_LONG = "the body is too long"
local ENCODED = "the body is compressed"
local UNREAD = "the body cannot be read"

-- `form` or `json`; nothing for any other kind, and for several statements.
function _M.kind(request)
  local lines = request:lines("content-type")
  if #lines ~= 1 then return nil end
  local essence = lower(trim(match(lines[1], "^[^;]*")))
  if essence == "application/x-www-form-urlencoded" then return "form" end
  if essence == "application/json" or match(essence, "^application/.*%+json$") then return "json" end
end

local function from_file(name, limit)
  local file = open(name, "rb")
  if not file then return nil, UNREAD end
  local data = file:read(limit + 1)
  file:close()
  data = data or ""
  if #data > limit then return nil, TOO_LONG end
  return data
end

local function flaw_of(request, length, limit)
  if not _M.kind(request) then return OTHER_KIND end
  if #request:lines("content-encoding") > 0 then return ENCODED end
  if length and length > limit then return TOO_LONG end
end

local function whole(request, limit)
  local length = tonumber(request:lines("content-length")[1])
  local is_told = length or #request:lines("transfer-encoding") > 0
  if length == 0 or not is_told and http_version() < 2 then return "" end
  local flaw = flaw_of(request, length, limit)
  -- Over HTTP/2, a body without a stated length may be there or not.
  if flaw and is_told then return nil, flaw end
  -- A body that nginx does not take, such as one above client_max_body_size, ends the request here.
  if not pcall(read_body) then return nil, UNREAD end
  local data, file = body_data(), body_file()
  if not data and not file then return "" end
  if flaw then return nil, flaw end
  if file then return from_file(file, limit) end
  if #data > limit then return nil, TOO_LONG end
  return data
end

-- The whole body of up to `limit` bytes, or nothing and the reason.
function _M.whole(request, limit)
  if not request.has_read_body then
    request.has_read_body = true
    request.body, request.body_flaw = whole(request, limit)
  end
  return request.body, request.body_flaw
end

return _M
