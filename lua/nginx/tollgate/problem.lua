-- The bodies of refusals: problem documents (RFC 9457), byte for byte those of Tollgate's layer in a service.

local concat, format = table.concat, string.format

local _M = {}

local TYPES = "https://iana.org/assignments/http-problem-types#"

local function document(kind, title, status, detail, rest)
  return format('{"type":"%s","title":"%s","status":%d,"detail":"%s"%s}', kind, title, status, detail, rest or "")
end

_M.UNDECIDED = document(TYPES .. "temporary-reduced-capacity", "Temporarily unavailable", 503,
  "The rate limiter cannot decide at the moment.")
_M.BLOCKED = {
  [403] = document("about:blank", "Forbidden", 403, "The caller is blocked."),
  [429] = document(TYPES .. "abnormal-usage-detected", "Abnormal usage detected", 429, "The caller is blocked."),
}
_M.BANNED = {
  [403] = document("about:blank", "Forbidden", 403, "The caller is banned."),
  [429] = document(TYPES .. "abnormal-usage-detected", "Abnormal usage detected", 429,
    "The caller was refused or failed too often, and is banned for a time."),
}

-- The request names no identity, or one that readers differ about. `what` names its place.
function _M.unidentified(what, why)
  local there = why and "an ambiguous " .. what .. " in the request: " .. why or "no " .. what .. " in the request"
  return document("about:blank", "Forbidden", 403, "There is " .. there .. ".")
end

-- Services read the request in different ways.
function _M.ambiguous(why)
  return document("about:blank", "Bad Request", 400, why)
end

-- These quotas would be exceeded.
function _M.exceeded(names, never)
  local detail = never and "The request asks for more than a quota ever holds." or
    "The request would exceed a quota; Retry-After says when it would not."
  return document(TYPES .. "quota-exceeded", "Quota exceeded", 429, detail,
    ',"violated-policies":["' .. concat(names, '","') .. '"]')
end

return _M
