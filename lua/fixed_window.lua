-- A count that starts anew in each window. Windows are numbered from the one that the epoch is in.
--
--   state   tag B (248), window d, count d
--   charge  cost d, limit d, period d, offset d
local function fixed_window()
  local TAG, LENGTH = 248, 17

  local function quota(run, pos)
    local cost, limit, period, offset, after = unpack('<dddd', run, pos)
    return { limit = limit, period = period, offset = offset, window = floor((now + period - offset) / period) }, cost, after
  end

  local function fresh()
    return { window = 0, count = 0, changed = false, found = false }
  end

  local function read(found)
    if #found ~= LENGTH then
      return false
    end
    local tag, window, count = unpack('<Bdd', found)
    return tag == TAG and is_whole(window) and is_whole(count)
      and { window = window, count = count, changed = false, found = window }
  end

  local function advance(state, quota)
    if state.window < quota.window then
      state.window, state.count, state.changed = quota.window, 0, true
    elseif state.window > quota.window + 1 then
      -- The clock stepped back: the count comes along. After a step of less than a period the window stays until it is over;
      -- otherwise the count would be dropped as soon as the clock is back.
      state.window, state.changed = quota.window, true
    end
  end

  local function passes(state, charge)
    return charge.cost == 0 or state.count + charge.cost <= charge.quota.limit
  end

  local function take(state, charge)
    state.count, state.changed = state.count + charge.cost, true
  end

  local function debit(state, charge)
    state.count, state.changed = counted_up(state.count, charge), true
  end

  local function give_back(state, charge, at)
    local quota = charge.quota
    if at <= now and floor((at + quota.period - quota.offset) / quota.period) == state.window then
      state.count, state.changed = max(state.count - charge.cost, 0), true
    end
  end

  local function write(key, state, quota)
    if state.window == state.found then
      return redis.call('SETRANGE', key, '9', pack('<d', state.count))
    end
    set_until(key, pack('<Bdd', TAG, state.window, state.count), (state.window + 1) * quota.period + quota.offset)
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
