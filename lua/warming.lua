-- Warm-up of GCRA: a charge passes as under any GCRA quota, but drains for longer while the budget is cold.
--
--   state   178 B, cold at d, ticks I4, and behind them a state as in gcra.lua or waiting.lua
--   charge  number 11: that of gcra.lua, and: parts B, spent d, warm-up d, step d, steps d, surcharge d. The tag and the parts tell an
--           eighth of the furthest that a state may lie ahead, as in waiting.lua
--
-- The idle time in store is the time for which nothing was left to drain, less what charges have spent of it: nothing to all of the
-- warm-up, in ticks of 2^-20 µs. All is in store at `cold`, if nothing arrives. The last part of the store, `steps` times `step`
-- ticks, is worth the `surcharge`, by the square of the steps, and a charge pays the difference between before and after.
--
-- Its functions come by name, and the rest as arguments: a name of the script that a function uses costs each general call 600
-- instructions, since the server looks for it among all others.
local function warming(now, is_whole, read, ahead, stands, leave, is_before, less)
  local WARMED, INNER, TICKS, SPLIT = 178, 14, 2 ^ 20, 2 ^ 14
  local byte, floor, max, min, pack, unpack = string.byte, math.floor, math.max, math.min, struct.pack, struct.unpack

  local function read_warmed(state, text)
    local _, us, ticks = unpack('<BdI4', text)
    state.is_known = is_whole(us) and ticks < TICKS and byte(text, INNER) ~= WARMED
    if state.is_known then
      read(state, text:sub(INNER))
      state.cold, state.ticks = us, ticks
    end
  end

  local function head(state)
    return pack('<BdI4', WARMED, state.cold, state.ticks)
  end

  -- The time from which a state is cold.
  local function cold_from(state)
    return state.ticks > 0 and state.cold + 1 or state.cold
  end

  -- The ticks of the store at the point (us, rest) ahead of now, before which nothing comes to it.
  local function stored(state, charge, us, rest)
    local full, missing = charge.warm * TICKS, state.cold and state.cold - now - us or -1
    if missing < 0 then
      return full
    elseif missing > charge.warm then
      return 0
    end
    return min(max(full - missing * TICKS - state.ticks + floor(rest * TICKS / charge.denominator), 0), full)
  end

  -- The whole part of number * part / of, in which the product may not be exact: the last is at most 2^32, and so are the others.
  local function share(number, part, of)
    local high, low = floor(part / SPLIT), part % SPLIT
    local whole = floor(number * high / of)
    return whole * SPLIT + floor(((number * high - whole * of) * SPLIT + number * low) / of)
  end

  -- The surcharge for all that is in store.
  local function surcharge(charge, store)
    local steps = charge.steps
    local cold = floor(max(store - charge.warm * TICKS + charge.step * steps, 0) / charge.step)
    return share(share(charge.surcharge, cold, steps), cold, steps)
  end

  -- The surcharge for what a charge spends of the store, and the rest of the store.
  local function spend(state, charge, us, rest)
    local before = stored(state, charge, us, rest)
    local after = max(before - charge.spent, 0)
    return surcharge(charge, before) - surcharge(charge, after), after
  end

  -- The time (us, rest) that comes back with a charge, at most the given one, and what is then in store.
  --
  -- The surcharge comes back at the price of the store as it would be without the credits that moved this charge up: their surcharge
  -- came back with them. If nothing would be in store, it is unknown how much of it this charge spent, and only the plain time comes
  -- back. A part of the charge that has drained stays spent.
  --
  -- A charge spends less than twice its time, and so a credit puts less than twice its time into the store.
  local function restore(state, charge, left_us, left_rest, moved, most_us, most_rest)
    local full, before, us, rest = charge.warm * TICKS, stored(state, charge, left_us, left_rest), charge.us, charge.rest
    local low, after = max(before - 2 * moved * TICKS, 0), before
    if low > 0 then
      after = min(before + charge.spent, full)
      us = us + surcharge(charge, min(low + charge.spent, full)) - surcharge(charge, low)
    end
    if is_before(most_us, most_rest, us, rest) then
      local drained, part = less(charge, us, rest, most_us, most_rest)
      after = max(after - 2 * (drained + (part > 0 and 1 or 0)) * TICKS, before)
      us, rest = most_us, most_rest
    end
    return us, rest, after
  end

  -- Leaves this in store, at the point (us, rest) ahead of now.
  local function keep(state, charge, us, rest, store)
    local ticks = floor(rest * TICKS / charge.denominator) + charge.warm * TICKS - store
    state.cold, state.ticks = now + us + floor(ticks / TICKS), ticks % TICKS
    state.changed = true
  end

  local function take(state, charge)
    local left, left_rest = ahead(stands(state, charge))
    local more, store = spend(state, charge, left, left_rest)
    local us, rest = left + charge.us + more, left_rest + charge.rest
    if rest >= charge.denominator then
      us, rest = us + 1, rest - charge.denominator
    end
    leave(state, charge, us, rest)
    keep(state, charge, us, rest, store)
  end

  return {
    read = read_warmed,
    head = head,
    cold_from = cold_from,
    spend = spend,
    restore = restore,
    keep = keep,
    take = take,
  }
end

