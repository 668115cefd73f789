-- As much as there is: the largest amount up to a bound that passes under every charge that leads. Charges name one unit each, as
-- many times as they stand for one, and are multiplied here. Made only where a grant is asked for. All that it needs comes as an
-- argument, because each name from outside would cost every call of main.lua some 300 instructions.
local function granting(state_of, advance, decide, now, byte, floor, max, min)
  -- Makes a charge ask for so many times its units. A rest beyond exact numbers is that of a drain longer than any budget and any wait:
  -- core refuses a budget eight of which would have such a rest.
  local function ask(charge, times)
    if not charge.unit then
      charge.unit, charge.unit_rest, charge.unit_spent = charge.us or charge.cost, charge.rest, charge.spent
    end
    if charge.denominator then
      local rest = charge.unit_rest * times
      charge.spent = charge.unit_spent and charge.unit_spent * times
      charge.us, charge.rest = charge.unit * times + floor(rest / charge.denominator), rest % charge.denominator
      charge.cost = charge.us + charge.rest
    else
      charge.cost = charge.unit * times
    end
  end

  -- About as many times its units as a charge can have, which may be off. It is 0 if finding it takes a search.
  local function about(state, charge)
    if charge.denominator then
      local left = charge.full - max(state.at - now, 0) + charge.full_rest / charge.denominator
      charge.guess = floor(left / (charge.unit + charge.unit_rest / charge.denominator))
    else
      local counted = state.count or state.sum or state.total
      charge.guess = counted and floor((charge.limit - counted) / charge.unit) or 0
    end
  end

  -- The amount to try next, of those between one that passes and one that does not: all, then a guess and its neighbours, then the
  -- middle. It may lie outside.
  local function try(charge, low, high, most, tries)
    if tries == 0 then
      charge.times = most
    elseif tries < 4 then
      charge.times = charge.guess + (tries < 3 and tries - 1 or -1)
    else
      charge.times = floor((low + high) / 2)
    end
  end

  -- The largest amount up to `most` that passes under a charge.
  local function room(charge, state, most)
    ask(charge, most)
    about(state, charge)
    local low, high, tries = 0, most + 1, 0
    while high - low > 1 do
      try(charge, low, high, most, tries)
      local times = charge.times
      if times > low and times < high then
        ask(charge, times)
        charge.rule.judge(state, charge)
        if charge.passes then
          low = times
        else
          high = times
        end
      end
      tries = tries + 1
    end
    return low
  end

  -- One request. All enforced charges lead; without these all on trial, and without these the probes: they stand in this order. It is
  -- decided like a request of this amount, or of `least` if there is less.
  return function(charges, run, pos, most, least)
    local leading, amount = nil, most
    for c = 1, #charges do
      local charge, i = charges[c], byte(run, pos + c)
      local state = state_of(i, charge)
      if not state or state.is_barred or charge.is_outside then
        return 0
      end
      if not charge.guards then
        leading = leading or charge.mode
        if charge.mode == leading then
          amount = room(charge, advance(i, charge, true), amount)
        end
      end
    end
    amount = min(most, max(amount, least))
    for c = 1, #charges do
      if not charges[c].guards then
        ask(charges[c], amount)
      end
    end
    return decide(charges, run, pos)
  end
end

