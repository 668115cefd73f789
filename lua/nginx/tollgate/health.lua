-- Redis as this worker sees it: one line in the log when it cannot decide any more, and one when it can again.

local format = string.format
local setmetatable = setmetatable
local ngx = ngx
local log, ERR, WARN, now = ngx.log, ngx.ERR, ngx.WARN, ngx.now

local _M = {}
local METHODS = { __index = _M }

-- Where Redis comes and goes, a spell begins no new line for so many seconds after the line about the last one.
local APART = 10

-- A state that is not ours fails the requests that need it, and no others: it has a line of its own, once in so many seconds.
local QUIET = 60

-- `place` names the server in the lines.
function _M.new(place)
  return setmetatable({ place = place, undecided = 0, strangers = 0 }, METHODS)
end

-- True if so many seconds have not passed. A clock may be set back.
local function is_recent(at, time, seconds)
  return at ~= nil and time >= at and time - at < seconds
end

function _M.failed(self, why)
  local time = now()
  self.since = self.since or time
  self.undecided = self.undecided + 1
  if self.is_told or is_recent(self.told_at, time, APART) then return end
  self.is_told = true
  log(ERR, format("tollgate: Redis at %s cannot decide, and each policy's on_failure acts until it can: %s", self.place, why))
end

function _M.decided(self)
  if not self.is_told then return end
  local time = now()
  log(WARN, format("tollgate: Redis at %s decides again; %d requests were undecided in %.1f s", self.place, self.undecided,
    time - self.since))
  self.is_told, self.told_at, self.since, self.undecided = false, time, nil, 0
end

function _M.met_stranger(self, name)
  local time = now()
  self.strangers = self.strangers + 1
  if is_recent(self.met_at, time, QUIET) then return end
  log(ERR, format("tollgate: the state %s in Redis at %s is not one of Tollgate's, and each policy's on_failure acts for requests" ..
    " that need it (%d such requests so far)", name, self.place, self.strangers))
  self.met_at = time
end

return _M
