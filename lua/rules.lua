-- What the rules share.
local byte, floor, max, min = string.byte, math.floor, math.max, math.min

-- Every state ends: at a point in time in µs, rounded up to ms. That of a window or log is a period after it counts no more,
-- since by a clock that steps back, and is less than a period behind, it would begin anew.
local function set_until(key, value, ends)
  redis.call('SET', key, value, 'PXAT', ('%d'):format(ends / 1000 + 1))
end

-- How many budgets a budget can owe, the one it holds included.
local DEBT_CEILING = 8

local function is_whole(number)
  return number >= 0 and number < 2 ^ 53 and number % 1 == 0
end

-- A count after a debit: at most the ceiling for debts, and never less than it was.
local function counted_up(count, charge)
  return max(count, min(count + charge.cost, charge.quota.limit * DEBT_CEILING))
end

