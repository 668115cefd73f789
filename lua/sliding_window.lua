-- Two counts: this window's, and the previous one's, weighed by the share of it that the sliding period still covers.
--
--   state   tag B (249), window d, previous d, current d
--   charge  cost d, limit d, period d
local function sliding_window()
  -- The product of two numbers below 2^46 as two limbs: high × 2^48 + low. A double holds either exactly.
  local function product(a, b)
    local LIMB = 2 ^ 24
    local a_low, b_low = a % LIMB, b % LIMB
    local a_high, b_high = (a - a_low) / LIMB, (b - b_low) / LIMB
    local low = a_low * b_low
    local middle = a_high * b_low + a_low * b_high + floor(low / LIMB)
    return a_high * b_high + floor(middle / LIMB), middle % LIMB * LIMB + low % LIMB
  end

  local function parse(charge, run, pos)
    charge.cost, charge.limit, charge.period, pos = unpack('<ddd', run, pos)
    charge.window = floor(now / charge.period)
    return pos
  end

  local function fresh(state)
    state.window, state.previous, state.current = 0, 0, 0
  end

  local function read(state, text)
    local tag
    if #text == 25 then
      tag, state.window, state.previous, state.current = unpack('<Bddd', text)
    end
    state.is_known = tag == 249 and is_whole(state.window) and is_whole(state.previous) and is_whole(state.current)
  end

  local function advance(state, charge)
    if state.window < charge.window then
      state.previous = state.window + 1 == charge.window and state.current or 0
      state.window, state.current, state.changed = charge.window, 0, true
    elseif state.window > charge.window + 1 then
      -- The clock stepped back. The earlier weight of the previous count is unknown, so the count is taken in full, but never
      -- beyond the limit. After a step of less than a period the window stays, and waits for the clock.
      state.current = max(state.current, min(charge.limit, state.previous + state.current))
      state.window, state.previous, state.changed = charge.window, 0, true
    end
  end

  -- previous × left / period + current + cost ≤ limit, as fractions: both sides times the period.
  local function judge(state, charge)
    local room = charge.limit - charge.cost - state.current
    charge.passes = charge.cost == 0
    if room >= 0 and not charge.passes then
      -- Nothing of the window has passed if the clock stepped back to before its start.
      local left = state.window > charge.window and charge.period or charge.period - now % charge.period
      local high, low = product(state.previous, left)
      local room_high, room_low = product(room, charge.period)
      charge.passes = high < room_high or (high == room_high and low <= room_low)
    end
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
    local window = floor(at / charge.period)
    if window == state.window then
      state.current, state.changed = max(state.current - charge.cost, 0), true
    elseif window + 1 == state.window then
      state.previous, state.changed = max(state.previous - charge.cost, 0), true
    end
  end

  local function expiry(state, charge)
    state.expires = (state.window + 3) * charge.period
  end

  local function form(state)
    state.text = pack('<Bddd', 249, state.window, state.previous, state.current)
  end

  return {
    parse = parse, fresh = fresh, read = read, advance = advance, judge = judge, take = take, debit = debit,
    give_back = give_back, expiry = expiry, form = form,
  }
end
