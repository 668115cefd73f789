-- Two counts: this window's, and the previous one's, weighed by the share of it that the sliding period still covers.
--
--   state   tag B (249), window d, previous d, current d
--   charge  cost d, limit d, period d
local function sliding_window()
  local TAG, LENGTH, LIMB = 249, 25, 2 ^ 24

  -- The product of two numbers below 2^46 as two limbs: high × 2^48 + low. A double holds either exactly.
  local function product(a, b)
    local a_low, b_low = a % LIMB, b % LIMB
    local a_high, b_high = (a - a_low) / LIMB, (b - b_low) / LIMB
    local low = a_low * b_low
    local middle = a_high * b_low + a_low * b_high + floor(low / LIMB)
    return a_high * b_high + floor(middle / LIMB), middle % LIMB * LIMB + low % LIMB
  end

  local function quota(run, pos)
    local cost, limit, period, after = unpack('<ddd', run, pos)
    return { limit = limit, period = period, window = floor(now / period) }, cost, after
  end

  local function fresh()
    return { window = 0, previous = 0, current = 0, changed = false, found = false }
  end

  local function read(found)
    if #found ~= LENGTH then
      return false
    end
    local tag, window, previous, current = unpack('<Bddd', found)
    return tag == TAG and is_whole(window) and is_whole(previous) and is_whole(current)
      and { window = window, previous = previous, current = current, changed = false, found = window }
  end

  local function advance(state, quota)
    if state.window < quota.window then
      state.previous = state.window + 1 == quota.window and state.current or 0
      state.window, state.current, state.changed = quota.window, 0, true
    elseif state.window > quota.window + 1 then
      -- The clock stepped back. The earlier weight of the previous count is unknown, so the count is taken in full, but never
      -- beyond the limit. After a step of less than a period the window stays, and waits for the clock.
      state.current = max(state.current, min(quota.limit, state.previous + state.current))
      state.window, state.previous, state.changed = quota.window, 0, true
    end
  end

  -- previous × left / period + current + cost ≤ limit, as fractions: both sides times the period.
  local function passes(state, charge)
    if charge.cost == 0 then
      return true
    end
    local quota = charge.quota
    local room = quota.limit - charge.cost - state.current
    if room < 0 then
      return false
    end
    -- Nothing of the window has passed if the clock stepped back to before its start.
    local left = state.window > quota.window and quota.period or quota.period - now % quota.period
    local high, low = product(state.previous, left)
    local room_high, room_low = product(room, quota.period)
    return high < room_high or (high == room_high and low <= room_low)
  end

  local function take(state, charge)
    state.current, state.changed = state.current + charge.cost, true
  end

  local function debit(state, charge)
    state.current, state.changed = counted_up(state.current, charge), true
  end

  local function give_back(state, charge, at)
    if at > now then
      return
    end
    local window = floor(at / charge.quota.period)
    if window == state.window then
      state.current, state.changed = max(state.current - charge.cost, 0), true
    elseif window + 1 == state.window then
      state.previous, state.changed = max(state.previous - charge.cost, 0), true
    end
  end

  local function write(key, state, quota)
    if state.window == state.found then
      return redis.call('SETRANGE', key, '9', pack('<dd', state.previous, state.current))
    end
    set_until(key, pack('<Bddd', TAG, state.window, state.previous, state.current), (state.window + 3) * quota.period)
  end

  return {
    quota = quota,
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
