-- As much as there is: the largest amount up to a bound that passes under every charge that leads. Charges name one unit each, as
-- many times as they stand for one, and are multiplied here. Made only where a grant is asked for. All that it needs comes as an
-- argument, because each name from outside would cost every call of main.lua some 300 instructions.
local function granting(state_of, advance, decide, now, byte, floor, max, min)
  -- Makes a GCRA charge ask for so many times its units. A rest beyond exact numbers is that of a drain longer than any budget and any
  -- wait: core refuses a budget eight of which would have such a rest.
  local function ask_drain(charge, times)
    local unit = charge.unit
    if not unit then
      unit = { us = charge.us, rest = charge.rest, spent = charge.spent }
      charge.unit = unit
    end
    charge.spent = unit.spent and unit.spent * times
    local rest = unit.rest * times
    charge.us, charge.rest = unit.us * times + floor(rest / charge.denominator), rest % charge.denominator
    charge.cost = charge.us + charge.rest
  end

  local function ask(charge, times)
    if charge.denominator then
      ask_drain(charge, times)
    else
      charge.unit = charge.unit or charge.cost
      charge.cost = charge.unit * times
    end
  end

  local function fits(charge, state, times)
    ask(charge, times)
    charge.rule.judge(state, charge)
    return charge.passes
  end

  -- About as many times its units as a charge can have, which may be off. It is 0 if finding it takes a search.
  local function about(charge, state)
    if charge.denominator then
      local left = charge.full - max(state.at - now, 0) + charge.full_rest / charge.denominator
      return floor(left / (charge.unit.us + charge.unit.rest / charge.denominator))
    end
    local counted = state.count or state.sum or state.total
    return counted and floor((charge.limit - counted) / charge.unit) or 0
  end

  -- The largest amount up to `most` that passes under a charge.
  local function room(charge, state, most)
    if most == 0 or fits(charge, state, most) then
      return most
    end
    -- The first passes, and the second does not.
    local low, high = 0, most
    local guess = about(charge, state)
    for step = 0, 2 do
      local times = step < 2 and guess + step or guess - 1
      if times > low and times < high then
        if fits(charge, state, times) then
          low = times
        else
          high = times
        end
      end
    end
    while high - low > 1 do
      local times = floor((low + high) / 2)
      if fits(charge, state, times) then
        low = times
      else
        high = times
      end
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

