-- Units that come all at once: the limit at the start of each period, up to the burst. Periods are numbered as those of a fixed
-- window. The debt is kept as whole refills, `ahead`, and a part of one more, `count`. Time takes whole refills away, whatever
-- the limit, so that quotas of other limits can share a state.
--
--   state   tag B (254), window d, ahead d, count d: the count is 1 to the limit, or both are 0
--   charge  cost d, limit d, period d, offset d, burst d
local function interval_refill()
  local TAG, LENGTH = 254, 25

  local function quota(run, pos)
    local cost, limit, period, offset, burst, after = unpack('<ddddd', run, pos)
    return { limit = limit, period = period, offset = offset, burst = burst, window = floor((now + period - offset) / period) },
      cost, after
  end

  local function fresh()
    return { window = 0, ahead = 0, count = 0, changed = false, found = false }
  end

  -- A state whose refills lie beyond exact numbers is foreign.
  local function read(found, quota)
    if #found ~= LENGTH then
      return false
    end
    local tag, window, ahead, count = unpack('<Bddd', found)
    return tag == TAG and is_whole(window) and is_whole(count)
      and (ahead == 0 or (is_whole(ahead) and count > 0 and ahead * quota.period < 2 ^ 53))
      and { window = window, ahead = ahead, count = count, changed = false, found = window + ahead }
  end

  local function advance(state, quota)
    local window, now_window = state.window, quota.window
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
  local function passes(state, charge)
    local quota, cost, part = charge.quota, charge.cost, state.count
    local limit = quota.limit
    if part > limit then
      part = limit
    end
    charge.to = state.ahead * limit + part + cost
    return cost == 0 or charge.to <= quota.burst
  end

  local function owe(state, quota, units)
    local ahead = units > quota.limit and floor((units - 1) / quota.limit) or 0
    state.ahead, state.count, state.changed = ahead, units - ahead * quota.limit, true
  end

  -- Takes a charge that was just asked for passage, from a state that nothing else has touched since.
  local function take(state, charge)
    owe(state, charge.quota, charge.to)
  end

  local function debit(state, charge)
    passes(state, charge)
    local units = min(charge.to, charge.quota.burst * DEBT_CEILING)
    if units > charge.to - charge.cost then
      owe(state, charge.quota, units)
    end
  end

  -- In the period of the charge; afterwards a part of it has been refilled already.
  local function give_back(state, charge, at)
    local quota, rest = charge.quota, charge.cost - state.count
    if at > now or floor((at + quota.period - quota.offset) / quota.period) ~= state.window then
      return
    end
    state.changed = true
    if rest < 0 then
      state.count = -rest
      return
    end
    local broken = floor(rest / quota.limit) + 1
    if broken > state.ahead then
      state.ahead, state.count = 0, 0
    else
      state.ahead, state.count = state.ahead - broken, broken * quota.limit - rest
    end
  end

  local function write(key, state, quota)
    local last = state.window + state.ahead
    if last == state.found then
      return redis.call('SETRANGE', key, '1', pack('<ddd', state.window, state.ahead, state.count))
    end
    set_until(key, pack('<Bddd', TAG, state.window, state.ahead, state.count), (last + 1) * quota.period + quota.offset)
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
