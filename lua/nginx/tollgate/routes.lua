-- Patterns of paths, such as /users/{id} and /files/{*rest}. A pattern is a list of segments, each a text (`prefix`) with a
-- parameter behind it (`param`), one for all the rest of the path (`rest`), or none.

local find, sub = string.find, string.sub
local concat, ipairs = table.concat, ipairs

local _M = {}

local function segment_covers(segment, text, is_last)
  local prefix = segment.prefix
  if not segment.param then return text == prefix end
  -- A parameter may be empty where something follows it.
  return sub(text, 1, #prefix) == prefix and not (is_last and #text == #prefix)
end

-- Of a path that begins as the pattern does.
local function segments_cover(pattern, path)
  local at, last = 2, #pattern
  for index = 1, last do
    local segment = pattern[index]
    if segment.rest then
      local prefix = segment.prefix
      return #path - at + 1 > #prefix and sub(path, at, at + #prefix - 1) == prefix
    end
    local slash = find(path, "/", at, true)
    if not segment_covers(segment, sub(path, at, slash and slash - 1 or -1), index == last) then return false end
    if not slash then return index == last end
    at = slash + 1
  end
  return false
end

-- True if the pattern covers this form of a path. Nearly every pattern has one parameter, at its end, and is compared without a loop:
-- a loop of so few turns leaves LuaJIT's compiler without a way through a request.
function _M.covers(pattern, path)
  local head = pattern.head
  local length = #head
  if sub(path, 1, length) ~= head then return false end
  if pattern.ends == "rest" then return #path > length end
  if pattern.ends == "param" then return #path > length and not find(path, "/", length + 1, true) end
  return segments_cover(pattern, path)
end

-- Calls `found` with each value of a parameter in a path that the pattern covers, encoded as it is there.
function _M.capture(pattern, path, name, found)
  local at = 2
  for index = 1, #pattern do
    local segment = pattern[index]
    local slash = find(path, "/", at, true)
    if segment.rest == name then
      found(sub(path, at + #segment.prefix))
    elseif segment.param == name then
      found(sub(path, at + #segment.prefix, slash and slash - 1 or -1))
    end
    if not slash then return end
    at = slash + 1
  end
end

-- Notes the text before the first parameter of a pattern, and which kind of parameter ends it if there is one alone.
local function prepare(pattern)
  local parts = {}
  for index, segment in ipairs(pattern) do
    parts[index] = segment.prefix
    if segment.rest then segment.param = nil end
    if segment.rest or segment.param then
      pattern.ends = index == #pattern and (segment.rest and "rest" or "param") or "more"
      break
    end
  end
  pattern.head = "/" .. concat(parts, "/")
end

-- A set of patterns. Those without parameters are found at once.
function _M.set(patterns, ignore_case)
  local set = { exact = {}, patterns = {}, ignore_case = ignore_case }
  for _, pattern in ipairs(patterns) do
    prepare(pattern)
    if not pattern.ends then
      set.exact[pattern.head] = pattern
    else
      set.patterns[#set.patterns + 1] = pattern
    end
  end
  return set
end

local function form_covered(set, form)
  if set.exact[form] then return true end
  local patterns = set.patterns
  for index = 1, #patterns do
    if _M.covers(patterns[index], form) then return true end
  end
  return false
end

-- True if a pattern of the set covers one of the forms.
function _M.any_covers(set, form, others)
  if form_covered(set, form) then return true end
  for n = 1, others and #others or 0 do
    if form_covered(set, others[n]) then return true end
  end
  return others ~= nil and others.filled and form_covered(set, others.filled) or false
end

-- True if the set exempts a path. Other forms of it widen what is covered, and never what is exempt. A layer behind may remove slashes,
-- and lead it elsewhere if a parameter took one of them.
function _M.exempts(set, raw, others)
  if set.exact[raw] then return true end
  if not form_covered(set, raw) then return false end
  for n = 1, others and #others or 0 do
    if not form_covered(set, others[n]) then return false end
  end
  return true
end

return _M
