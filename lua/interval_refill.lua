-- Units that come all at once: the limit at the start of each period, up to the burst. Periods are numbered as those of a fixed
-- window. The debt is kept as whole refills, `ahead`, and a part of one more, `count`. Time takes whole refills away, whatever
-- the limit, so that quotas of other limits can share a state.
--
--   state   tag B (254), window d, ahead d, count d: the count is 1 to the limit, or both are 0
--   charge  cost d, limit d, period d, offset d, burst d
local function interval_refill()
  local function parse(charge, run, pos)
    charge.cost, charge.limit, charge.period, charge.offset, charge.burst, pos = unpack('<ddddd', run, pos)
    charge.window = floor((now + charge.period - charge.offset) / charge.period)
    return pos
  end

  local function fresh(state)
    state.window, state.ahead, state.count = 0, 0, 0
  end

  -- A state whose refills lie beyond exact numbers is foreign.
  local function read(state, text, charge)
    local tag
    if #text == 25 then
      tag, state.window, state.ahead, state.count = unpack('<Bddd', text)
    end
    state.is_known = tag == 254 and is_whole(state.window) and is_whole(state.count)
      and (state.ahead == 0 or is_whole(state.ahead) and state.count > 0 and state.ahead * charge.period < 2 ^ 53)
  end

  local function advance(state, charge)
    local window, now_window = state.window, charge.window
    if window < now_window then
      state.ahead = state.ahead - (now_window - window)
      if state.ahead < 0 then
        state.ahead, state.count = 0, 0
      end
      state.window, state.changed = now_window, true
    elseif window > now_window + 1 then
      -- The clock stepped back: all that is owed comes along. After a step of less than a period the state waits for the clock;
      -- otherwise the same refill would come twice.
      state.window, state.changed = now_window, true
    end
  end

  -- Keeps the units that are owed with the charge, for `take`. Another limit may have left a larger part than a refill of this
  -- one.
  local function judge(state, charge)
    charge.to = state.ahead * charge.limit + min(state.count, charge.limit) + charge.cost
    charge.passes = charge.cost == 0 or charge.to <= charge.burst
  end

  -- Takes a charge that was just judged, from a state that nothing else has touched since.
  local function take(state, charge)
    state.ahead = charge.to > charge.limit and floor((charge.to - 1) / charge.limit) or 0
    state.count, state.changed = charge.to - state.ahead * charge.limit, true
  end

  local function debit(state, charge)
    judge(state, charge)
    local owed = charge.to - charge.cost
    charge.to = min(charge.to, charge.burst * DEBT_CEILING)
    if charge.to > owed then
      take(state, charge)
    end
  end

  -- In the period of the charge; afterwards a part of it has been refilled already.
  local function give_back(state, charge, at)
    local rest = charge.cost - state.count
    if at > now or floor((at + charge.period - charge.offset) / charge.period) ~= state.window then
      return
    end
    state.changed = true
    if rest < 0 then
      state.count = -rest
      return
    end
    local broken = floor(rest / charge.limit) + 1
    if broken > state.ahead then
      state.ahead, state.count = 0, 0
    else
      state.ahead, state.count = state.ahead - broken, broken * charge.limit - rest
    end
  end

  local function expiry(state, charge)
    state.expires = (state.window + state.ahead + 1) * charge.period + charge.offset
  end

  local function form(state)
    state.text = pack('<Bddd', 254, state.window, state.ahead, state.count)
  end

  return {
    parse = parse, fresh = fresh, read = read, advance = advance, judge = judge, take = take, debit = debit,
    give_back = give_back, expiry = expiry, form = form,
  }
end
