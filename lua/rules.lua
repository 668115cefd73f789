-- Functions that the rules share.
local byte, floor, max, min = string.byte, math.floor, math.max, math.min

-- Sets the end of a state: a time in µs, rounded up to ms. A window or log ends a period after it stops counting, because a
-- clock that steps back by less than a period may come back to it.
local function set_until(key, value, ends)
  redis.call('SET', key, value, 'PXAT', ('%d'):format(ends / 1000 + 1))
end

-- The most budgets that a budget can owe, its own included.
local DEBT_CEILING = 8

local function is_whole(number)
  return number >= 0 and number < 2 ^ 53 and number % 1 == 0
end

-- A count after a debit: at most the ceiling for debts, and never less than it was.
local function counted_up(count, charge)
  return max(count, min(count + charge.cost, charge.quota.limit * DEBT_CEILING))
end

