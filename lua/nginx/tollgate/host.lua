-- The host that a request is for: the one that all readers see, and each that some reader may.

local address = require "tollgate.address"
local text = require "tollgate.text"

local byte, find, gmatch, gsub, lower = string.byte, string.find, string.gmatch, string.gsub, string.lower
local match, sub = string.match, string.sub
local ngx = ngx
local percent_decode, trim, without_end = text.percent_decode, text.trim, text.without_end

local _M = {}

-- The authority of a target as it was sent: nginx keeps it in the whole line alone.
local function authority_of(request)
  local target = match(ngx.var.request or "", "^%S+ (%S+)")
  if not target or byte(target) == 47 then return nil end
  return match(target, "^%a[%w+.-]*://([^/?#]*)")
end

local function without_port(host)
  return match(host, "^(.*):%d*$") or host
end

-- The name in lower case, without dots at its end, and an IPv6 address in its one form; nothing if readers differ about the text.
local function name_of(host)
  host = without_end(host, 46)
  local v6 = match(host, "^%[(.*)%]$")
  if v6 then return address.v6(v6) and "[" .. text.one_form(v6) .. "]" end
  return find(host, "^[%w._~-]+$") and lower(host) or nil
end

-- The host, if all parts of a request say the same; or nothing, and true if one is said.
local function agreed(request)
  local said, is_said, first = request:lines("host"), false, nil
  local hosts = {}
  local authority = authority_of(request)
  if authority then
    is_said = true
    hosts[1] = name_of(without_port(match(authority, "^.*@(.*)$") or authority)) or false
  end
  for n = 1, #said do
    local line = trim(said[n])
    is_said = is_said or line ~= ""
    hosts[#hosts + 1] = name_of(without_port(line)) or false
  end
  first = hosts[1]
  for n = 2, #hosts do
    if hosts[n] ~= first then first = nil end
  end
  return first or nil, is_said
end

function _M.of(request)
  if request.host == nil then
    local host, is_said = agreed(request)
    request.host, request.is_host_said = host or false, is_said
  end
  return request.host or nil, request.is_host_said
end

local function is_name_in(hosts, name)
  if hosts.exact[name] then return true end
  for n = 1, #hosts.below do
    local suffix = hosts.below[n]
    if #name > #suffix and sub(name, -#suffix) == suffix then return true end
  end
  return false
end

-- True if a part of this text could be one of the hosts. Readers differ about the characters around it.
local function has_any(said, hosts)
  said = lower(gsub(percent_decode(said), "\\", ""))
  -- Readers of URLs make other names of such characters, so that it may be any host.
  if find(said, "[%c\128-\255]") then return true end
  for name in gmatch(said, "[%w._~-]+") do
    name = without_end(sub(name, find(name, "[^.]") or #name), 46)
    if name ~= "" and is_name_in(hosts, name) then return true end
  end
  for part in gmatch(said, "[%x:.]+") do
    local v6 = find(part, ":", 1, true) and address.v6(part)
    if v6 and hosts.v6[v6] then return true end
  end
  return false
end

-- True if some reading of a request names one of the hosts, or if it names none: a server takes it for its own then.
function _M.is_any(request, hosts)
  local forwarded, other = request:lines("forwarded"), request:lines("x-forwarded-host")
  if #forwarded == 0 and #other == 0 then
    local host = _M.of(request)
    if host and byte(host) ~= 91 then return is_name_in(hosts, host) end
  end
  local authority, is_said = authority_of(request), false
  for _, lines in ipairs { { authority }, request:lines("host"), forwarded, other } do
    for n = 1, #lines do
      if has_any(lines[n], hosts) then return true end
      is_said = is_said or (lines[n] ~= "" and byte(lines[n]) ~= 58)
    end
  end
  return not is_said
end

-- The hosts of a configuration: names, all names below one (`*.`), and IPv6 addresses in brackets.
function _M.set(list)
  local set = { exact = {}, below = {}, v6 = {} }
  for _, host in ipairs(list) do
    host = without_end(lower(host), 46)
    local v6, below = match(host, "^%[(.*)%]$"), match(host, "^%*(%..*)$")
    if v6 then
      set.v6[address.v6(v6)] = true
    elseif below then
      set.below[#set.below + 1] = below
    else
      set.exact[host] = true
    end
  end
  return set
end

return _M
