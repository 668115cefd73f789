-- The path of a request: the form that routes are compared with, and the paths that services read in different ways.

local span = require "tollgate.span"
local text = require "tollgate.text"

local byte, find, format, gmatch, gsub = string.byte, string.find, string.format, string.gmatch, string.gsub
local lower, match, sub = string.lower, string.match, string.sub
local concat, ipairs = table.concat, ipairs
local percent_decode, is_utf8 = text.percent_decode, text.is_utf8

local _M = {}

local function encoded(letter)
  return format("%%%02X", byte(letter))
end

-- Each character in one form: invisible ones, blanks, percent signs and slashes within a segment stay encoded.
function _M.canonical(path, ignore_case)
  local segments = {}
  for segment in gmatch(path .. "/", "([^/]*)/") do
    local plain = percent_decode(segment)
    if ignore_case then plain = lower(plain) end
    segments[#segments + 1] = gsub(plain, "[%z\1-\32%%/\127-\255]", encoded)
  end
  return concat(segments, "/")
end

-- Without slashes at its ends.
local function trimmed(path)
  local first, last = find(path, "[^/]") or #path + 1, #path
  while last > first and byte(path, last) == 47 do last = last - 1 end
  return "/" .. sub(path, first, last)
end

-- Without slashes that are doubled or at the end, and without segments of one text.
local function tidied(path, gone)
  local segments = {}
  for segment in gmatch(path, "[^/]+") do
    if segment ~= gone then segments[#segments + 1] = segment end
  end
  return "/" .. concat(segments, "/")
end

-- The path to which `..` leads.
local function led_up(path)
  local segments = {}
  for segment in gmatch(path, "[^/]+") do
    segments[segment == ".." and #segments or #segments + 1] = segment ~= ".." and segment or nil
  end
  return "/" .. concat(segments, "/")
end

-- With a name in place of each empty one, for a parameter that may be empty in front of a last slash.
local function filled(path)
  local segments, last = {}, byte(path, #path) == 47 and #path - 1 or #path
  for segment in gmatch(sub(path, 2, last) .. "/", "([^/]*)/") do
    segments[#segments + 1] = segment == "" and "%00" or segment
  end
  return "/" .. concat(segments, "/")
end

-- The other forms that a path has for layers and services behind; nothing if there are none. `filled` tells no parameters.
local function others(form)
  if not find(form, "//", 1, true) and not find(form, "/.", 1, true) and not find(form, "%2F", 1, true)
    and byte(form, #form) ~= 47 then
    return nil
  end
  local known, forms = { [form] = true }, {}
  local decoded = gsub(form, "%%2F", "/")
  local named, parted = tidied(form, "."), tidied(decoded, ".")
  for _, other in ipairs { trimmed(form), tidied(form), named, parted, led_up(named), led_up(parted) } do
    if not known[other] then
      known[other], forms[#forms + 1] = true, other
    end
  end
  if #forms == 0 then return nil end
  forms.filled = find(form, "//", 1, true) and filled(form)
  return forms
end

-- The forms of a path: the usual one, and the others if there are some.
function _M.forms(path, ignore_case)
  local form = path
  if find(path, "[^!-$&-~]") or (ignore_case and find(path, "%u")) then
    form = _M.canonical(path, ignore_case)
  end
  return form, others(form)
end

-- The part of a path that one service resolves, decodes or cuts, and another takes as it is.
function _M.ambiguity(path)
  -- Nearly every path has none of these.
  if not find(path, "[%%\\;\128-\255]") and not find(path, "//", 1, true) and not find(path, "/.", 1, true) then return nil end
  local small = lower(path)
  if find(small, "//", 1, true) then return "two slashes" end
  if find(small, "%2f", 1, true) then return "an encoded slash" end
  if find(small, "\\", 1, true) or find(small, "%5c", 1, true) then return "a backslash" end
  if find(small, ";", 1, true) or find(small, "%3b", 1, true) then return "a semicolon" end
  if find(small, "%%[01]%x") or find(small, "%7f", 1, true) then return "an encoded control byte" end
  if not is_utf8(path) then return "bytes that are not UTF-8" end
  for segment in gmatch(small, "[^/]+") do
    local dots = gsub(segment, "%%2e", ".")
    if dots == "." or dots == ".." then return "a segment of dots" end
  end
end

-- The bytes that are the same to all readers of a path; and those of them that no reader takes for others of another case.
local PLAIN, SMALL = span.set "[%w%-_~!$&'()*+,=:@./]", span.set "[%l%d%-_~!$&'()*+,=:@./]"

-- The length of a path that begins this target, if it has one form alone and no reader resolves it; nothing if a closer look is due.
-- Nearly every path is such a one.
function _M.plain_length(target, ignore_case)
  local length = span.length(target, ignore_case and SMALL or PLAIN)
  if length ~= #target and byte(target, length + 1) ~= 63 then return nil end
  if byte(target, 1) ~= 47 or (length > 1 and byte(target, length) == 47) then return nil end
  local doubled, dotted = find(target, "//", 1, true), find(target, "/.", 1, true)
  -- Such ones in the query do not count.
  if (doubled and doubled < length) or (dotted and dotted < length) then return nil end
  return length
end

-- The path and the query of a target as it was sent; nothing if it is not a path.
function _M.split(target)
  if byte(target, 1) ~= 47 and target ~= "*" then return nil end
  local path = match(target, "^[^?]*")
  if #path == #target then return path end
  return path, sub(target, #path + 2)
end

return _M
