-- The memory of a worker that Redis does not answer, so that its requests do not wait for the deadline one after the other.

local clock = require "tollgate.clock"

local max, setmetatable = math.max, setmetatable
local now = clock.seconds

local _M = {}
local METHODS = { __index = _M }

-- After so many questions in a row without an answer, one request in so many seconds asks again.
local IN_A_ROW, PAUSE = 3, 1

function _M.new(deadline)
  return setmetatable({ failures = 0, again_at = 0, pause = max(PAUSE, 2 * deadline) }, METHODS)
end

-- True if a request may ask. The pause is longer than a question takes, so that no other one asks meanwhile.
function _M.lets_ask(self)
  if self.failures < IN_A_ROW then return true end
  local time = now()
  -- A clock may be set back.
  if time < self.again_at and self.again_at - time <= self.pause then return false end
  self.again_at = time + self.pause
  return true
end

function _M.failed(self)
  self.failures = self.failures + 1
  if self.failures == IN_A_ROW then self.again_at = now() + self.pause end
end

function _M.answered(self)
  self.failures = 0
end

return _M
