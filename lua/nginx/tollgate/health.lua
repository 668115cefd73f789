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

function _M.decided(self)
  if self.undecided == 0 then return end
  log(WARN, format("tollgate: Redis decides again; %d requests were undecided in %.1f s", self.undecided, now() - self.since))
  self.undecided = 0
end

return _M
