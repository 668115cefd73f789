-- The most budgets that a budget can owe, its own included.
local DEBT_CEILING = 8

-- A count after a debit: at most the ceiling for debts, and never less than it was.
local function counted_up(count, charge)
  return max(count, min(count + charge.cost, charge.limit * DEBT_CEILING))
end

