-- The identity whose budget a request spends, part by part: each as axum's extractors would show it to a handler.
--
-- A reader returns the identity in its canonical form, the kind as one byte and then the content; or nothing and the reason, if it
-- is there but readers differ about it.

local address = require "tollgate.address"
local body = require "tollgate.body"
local cookie = require "tollgate.cookie"
local form = require "tollgate.form"
local host = require "tollgate.host"
local json = require "tollgate.json"
local reading = require "tollgate.reading"
local routes = require "tollgate.routes"
local text = require "tollgate.text"

local byte, char, find, gmatch, lower = string.byte, string.char, string.find, string.gmatch, string.lower
local match, ngx, sub = string.match, ngx, string.sub
local ceil, concat = math.ceil, table.concat
local trim = text.trim

local _M = {}

local function bytes(value, why)
  if value == nil or value == "" then return nil, why end
  return "b" .. value
end

local READERS = {}

READERS["client-ip"] = function(_, request, config)
  local found = request:address(config.client)
  if not found then return nil end
  if #found == 4 then return "\4" .. found end
  local bits = config.ipv6_prefix
  return "\6" .. char(bits) .. sub(address.masked(found, bits), 1, ceil(bits / 8))
end

READERS.global = function()
  return "\0"
end

local COMMON = {
  GET = "GET", HEAD = "GET", POST = "POST", PUT = "PUT", DELETE = "DELETE", PATCH = "PATCH", OPTIONS = "OPTIONS",
  CONNECT = "CONNECT", TRACE = "TRACE",
}

READERS.method = function(_, request)
  return "b" .. (COMMON[request.method] or "")
end

READERS.header = function(part, request)
  local first = request:line(part.name)
  return bytes(first and trim(first))
end

READERS.host = function(_, request)
  local found, is_said = host.of(request)
  return bytes(found, not found and is_said and "it can be read in several ways, or in none" or nil)
end

READERS.cookie = function(part, request)
  return bytes(cookie.value(request:lines("cookie"), part.name))
end

READERS.query = function(part, request)
  local query = request.query or ""
  if form.is_elsewhere(query, part.name) then return nil, reading.ELSEWHERE end
  local add, result = reading.new()
  form.values(query, part.name, add)
  return bytes(result())
end

-- Slashes that are doubled or at an end make no other identity, so they are removed before the rest is brought to its one form.
local function tidy(value)
  value = text.percent_decode(value)
  if byte(value) ~= 47 and byte(value, #value) ~= 47 and not find(value, "//", 1, true) then return text.one_form(value) end
  local segments = {}
  for segment in gmatch(value, "[^/]+") do segments[#segments + 1] = segment end
  return #segments == 0 and "/" or text.one_form(concat(segments, "/"))
end

READERS["path-param"] = function(part, request, _, policy)
  local add, result = reading.new()
  local function found(value) add(tidy(value)) end
  for _, pattern in ipairs(policy.routes.all) do
    for form = 0, request.others and #request.others or 0 do
      local path = form == 0 and request.form or request.others[form]
      if routes.covers(pattern, path) then routes.capture(pattern, path, part.name, found) end
    end
  end
  return bytes(result())
end

-- The credentials of a scheme; nothing and perhaps a reason if there is not one that all readers see.
local function credentials(request, scheme)
  local add, result = reading.new()
  for _, line in ipairs(request:lines("authorization")) do
    line = trim(line)
    local is_it = lower(sub(line, 1, #scheme)) == scheme and find(line, "^[ \t]", #scheme + 1)
    -- Another scheme says as much as an empty value.
    add(is_it and trim(sub(line, #scheme + 2)) or "")
    -- Some readers find nothing behind a tab.
    if sub(line, #scheme + 1, #scheme + 1) == "\t" then add("") end
  end
  return result()
end

READERS["bearer-token"] = function(_, request)
  local token, why = credentials(request, "bearer")
  -- No token has one, and some services take the first part.
  if token and find(token, "[ \t,]") then return nil, reading.ELSEWHERE end
  return bytes(token, why)
end

local NO_USER = "it is not base64 of a user and a password"

-- Base64 in its one form: readers differ about others.
local function decoded(encoded)
  local plain = ngx.decode_base64(encoded)
  return plain and ngx.encode_base64(plain) == encoded and plain or nil
end

READERS["basic-user"] = function(_, request)
  local encoded, why = credentials(request, "basic")
  if not encoded then return nil, why end
  local plain = decoded(encoded)
  local colon = plain and find(plain, ":", 1, true)
  if not colon then return nil, NO_USER end
  return bytes(sub(plain, 1, colon - 1))
end

-- The form of a GET is its query, as axum's `Form` has it: if its body has the field too, both have to agree. The form of a HEAD is both.
READERS["form-field"] = function(part, request, config)
  local read, why = body.whole(request, config.body_limit)
  if not read then return nil, why end
  if read ~= "" and body.kind(request) == "json" then return nil, "the body is JSON by its content type" end
  local add, result = reading.new()
  local method = request.method
  local query = (method == "GET" or method == "HEAD") and request.query or ""
  if form.is_elsewhere(query, part.name) or form.is_elsewhere(read, part.name) then return nil, reading.ELSEWHERE end
  form.values(query, part.name, add)
  -- What the body alone says differs from nothing.
  if method == "GET" and not result() then add("") end
  local has_field
  form.values(read, part.name, function(value)
    has_field = true
    add(value)
  end)
  -- Axum's `Form` looks at the body of a HEAD alone.
  if method == "HEAD" and not has_field then add("") end
  return bytes(result())
end

READERS["json-field"] = function(part, request, config)
  local read, why = body.whole(request, config.body_limit)
  if not read then return nil, why end
  if read == "" then return nil end
  local kind = body.kind(request)
  if kind == "form" then return nil, "the body is a form by its content type" end
  local found, reason, is_json = json.field(read, part.path)
  if not is_json and kind == "json" then return nil, "the body is not JSON" end
  return bytes(found, reason)
end

-- The canonical form of a part that is not there.
local MISSING = "\1"

-- The parts of an identity; or nothing, the part that was not found, the reason if it is ambiguous, and the parts by which requests
-- without it share a budget. An ambiguous part comes before a missing one.
function _M.find(policy, request, config)
  local parts, known, missing, reason = {}, false, nil, nil
  local wanted = policy.key
  for n = 1, #wanted do
    local part = wanted[n]
    local found, why = part.read(part, request, config, policy)
    if found then
      parts[n], known = found, true
    else
      parts[n] = MISSING
      if not missing or (why and not reason) then missing, reason = part, why end
    end
  end
  if missing then return nil, missing, reason, known and parts or { MISSING } end
  return parts
end

-- The function that finds this kind of part: it takes the part, the request, the configuration and the policy. Nothing if there is
-- no such kind.
function _M.reader(by)
  return READERS[by]
end

return _M
