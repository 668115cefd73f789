-- Redis as this worker sees it: one line in the log when it cannot decide any more, and one when it can again.

local format = string.format
local ngx = ngx
local log, ERR, WARN, now = ngx.log, ngx.ERR, ngx.WARN, ngx.now

local _M = {}
local METHODS = { __index = _M }

function _M.new()
  return setmetatable({ undecided = 0 }, METHODS)
end

function _M.failed(self, why)
  if self.undecided == 0 then
    self.since = now()
    log(ERR, "tollgate: Redis cannot decide, and each policy's on_failure acts until it can: ", why)
  end
  self.undecided = self.undecided + 1
end

-- A state that is not ours fails the requests that need it, and no others: it has a line of its own, once in so many seconds.
local QUIET = 60

function _M.met_stranger(self, name)
  local time = now()
  self.strangers = (self.strangers or 0) + 1
  if self.met_at and time - self.met_at < QUIET then return end
  log(ERR, format("tollgate: the state %s is not one of Tollgate's, and each policy's on_failure acts for requests that need it" ..
    " (%d such requests so far)", name, self.strangers))
  self.met_at = time
end

function _M.decided(self)
  if self.undecided == 0 then return end
  log(WARN, format("tollgate: Redis decides again; %d requests were undecided in %.1f s", self.undecided, now() - self.since))
  self.undecided = 0
end

return _M
