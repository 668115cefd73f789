-- GCRA: a bucket that drains at limit/period. The state is the point in time at which it will be empty, that is, the
-- budget full again: whole microseconds `at`, and a `rest` in fractions of the quota's denominator.
--
--   state   tag B, at d [, rest I4 [, worthless_until d, capped_until d, lowest d, relevant_until d, lowest_rest I4]]
--   quota   burst d, interval d, interval_rest d, denominator d, tag B
--
-- The tag is 128 + n: expiries stand at ends of cells of 2^n microseconds, so that most writes leave the expiry alone.
-- The part in the innermost brackets is there once something was given back, see `give_back`.
local function gcra()
  local SHORT, LONG, CREDITED = 9, 13, 49

  local function span(quota, cost)
    local rests = cost * quota.rest
    return cost * quota.us + floor(rests / quota.denominator), rests % quota.denominator
  end

  -- How far a point lies ahead of now; nothing if it has passed.
  local function ahead(quota, us, rest)
    if us < now then
      return 0, 0
    elseif rest >= quota.denominator then
      -- Left by a quota of another rate. Less than a microsecond, rounded to the strict side.
      return us - now + 1, 0
    end
    return us - now, rest
  end

  local function is_before(us, rest, other_us, other_rest)
    return us < other_us or (us == other_us and rest < other_rest)
  end

  local function set(state, at, rest)
    if at ~= state.at or rest ~= state.rest then
      state.at, state.rest, state.changed = at, rest, true
    end
  end

  local function quota(run, pos)
    local burst, us, rest, denominator, tag, after = unpack('<ddddB', run, pos)
    local quota = {
      burst = burst, us = us, rest = rest, denominator = denominator, tag = tag, cell = ldexp(1, tag - 128),
      latest = 0, full_rest = 0,
    }
    local full_us
    full_us, quota.full_rest = span(quota, burst)
    quota.latest = now + full_us
    return quota, after
  end

  -- What a charge needs that depends on its cost as well.
  local function price(charge)
    charge.us, charge.rest = span(charge.quota, charge.cost)
  end

  local function fresh()
    return { at = 0, rest = 0, tag = 0, length = 0, from = 0, credits = false, changed = false }
  end

  local function read(found)
    local length = #found
    if length ~= SHORT and length ~= LONG and length ~= CREDITED then
      return false
    end
    local tag, at = unpack('<Bd', found)
    local state = { at = at, rest = 0, tag = tag, length = length, from = at, credits = false, changed = false }
    if length > SHORT then
      state.rest = unpack('<I4', found, 10)
      state.from = at + 1
    end
    if length == CREDITED then
      local credits = {}
      credits.worthless, credits.capped, credits.us, credits.relevant, credits.rest = unpack('<ddddI4', found, 14)
      if not (is_whole(credits.worthless) and is_whole(credits.capped) and is_whole(credits.us)
          and is_whole(credits.relevant)) then
        return false
      end
      state.credits, state.from = credits, max(at + 1, credits.relevant)
    end
    return tag >= 128 and tag < 192 and is_whole(at) and state
  end

  -- Further ahead than a burst only with a debt, after a clock stepped back, or under a quota that holds less than the one
  -- before.
  local function advance(state, quota)
    local us, rest = ahead(quota, state.at, state.rest)
    if is_before(quota.latest - now, quota.full_rest, us, rest) then
      local most_us, most_rest = span(quota, quota.burst * DEBT_CEILING)
      if is_before(most_us, most_rest, us, rest) then
        us, rest = most_us, most_rest
      end
      set(state, now + us, rest)
    end
  end

  local function charged(state, charge)
    local quota = charge.quota
    local us, rest = ahead(quota, state.at, state.rest)
    return admit(now + us, rest, charge.us, charge.rest, quota.denominator, quota.latest, quota.full_rest, 1)
  end

  local function passes(state, charge)
    return charge.cost == 0 or charged(state, charge) == 1
  end

  local function take(state, charge)
    local _, at, rest = charged(state, charge)
    set(state, at, rest)
  end

  local function debit(state, charge)
    local quota = charge.quota
    local us, rest = ahead(quota, state.at, state.rest)
    local more_us, more_rest = span(quota, min(charge.cost, quota.burst * DEBT_CEILING))
    local most_us, most_rest = span(quota, quota.burst * DEBT_CEILING)
    us, rest = us + more_us, rest + more_rest
    if rest >= quota.denominator then
      us, rest = us + 1, rest - quota.denominator
    end
    if is_before(most_us, most_rest, us, rest) then
      us, rest = most_us, most_rest
    end
    set(state, now + us, rest)
  end

  -- At most the time for which the charge still shows in the state comes back. A charge shows until `full`, where it left
  -- the state; one that was there when another was given back shows until where that credit left the state, if that is
  -- earlier. The lowest such point is kept, and until when it speaks for.
  local function give_back(state, charge, at, full_us, full_rest)
    local quota, credits = charge.quota, state.credits
    local back_us, back_rest = ahead(quota, full_us, full_rest)
    if credits then
      if at <= credits.worthless then
        return
      end
      local us, rest = ahead(quota, credits.us, credits.rest)
      if at <= credits.capped and is_before(us, rest, back_us, back_rest) then
        back_us, back_rest = us, rest
      end
    end
    if is_before(charge.us, charge.rest, back_us, back_rest) then
      back_us, back_rest = charge.us, charge.rest
    end
    local us, rest = ahead(quota, state.at, state.rest)
    -- A charge from the future: the clock stepped back, and nothing is certain.
    if (back_us == 0 and back_rest == 0) or (us == 0 and rest == 0) or at > now then
      return
    end
    local relevant = state.at + (state.rest > 0 and 1 or 0)
    us, rest = us - back_us, rest - back_rest
    if rest < 0 then
      us, rest = us - 1, rest + quota.denominator
    end
    if us < 0 then
      us, rest = 0, 0
    end
    us = now + us
    set(state, us, rest)

    state.changed = true
    if not credits then
      state.credits = { worthless = 0, capped = now, us = us, rest = rest, relevant = relevant }
      return
    end
    if credits.us < now then
      credits.worthless, credits.us, credits.rest = credits.capped, us, rest
    elseif is_before(us, rest, credits.us, credits.rest) then
      credits.us, credits.rest = us, rest
    end
    credits.capped, credits.relevant = now, max(credits.relevant, relevant)
  end

  -- In place while the expiry stays what it is: in the same cell, of the same width.
  local function write(key, state, quota)
    local at, rest, credits, cell = state.at, state.rest, state.credits, quota.cell
    if not credits and state.tag == quota.tag then
      local from = state.from - state.from % cell
      if state.length == SHORT and rest == 0 and from == at - at % cell then
        return redis.call('SETRANGE', key, '1', pack('<d', at))
      elseif state.length == LONG and from == at + 1 - (at + 1) % cell then
        return redis.call('SETRANGE', key, '1', pack('<dI4', at, rest))
      end
    end
    local value, ends = pack('<Bd', quota.tag, at), at
    if credits then
      value = value .. pack('<I4ddddI4', rest, credits.worthless, credits.capped, credits.us, credits.relevant,
        credits.rest)
      ends = max(at + 1, credits.relevant)
    elseif rest > 0 then
      value, ends = value .. pack('<I4', rest), at + 1
    end
    set_until(key, value, ends - ends % cell + cell)
  end

  return {
    quota = quota,
    price = price,
    fresh = fresh,
    read = read,
    advance = advance,
    passes = passes,
    take = take,
    debit = debit,
    give_back = give_back,
    write = write,
  }
end
