-- A count that starts anew in each window. Windows are numbered from the one that the epoch is in.
--
--   state   tag B (248), window d, count d
--   charge  cost d, limit d, period d, offset d
local function fixed_window()
  local function parse(charge, run, pos)
    charge.cost, charge.limit, charge.period, charge.offset, pos = unpack('<dddd', run, pos)
    charge.window = floor((now + charge.period - charge.offset) / charge.period)
    return pos
  end

  local function fresh(state)
    state.window, state.count = 0, 0
  end

  local function read(state, text)
    local tag
    if #text == 17 then
      tag, state.window, state.count = unpack('<Bdd', text)
    end
    state.is_known = tag == 248 and is_whole(state.window) and is_whole(state.count)
  end

  local function advance(state, charge)
    if state.window < charge.window then
      state.window, state.count, state.changed = charge.window, 0, true
    elseif state.window > charge.window + 1 then
      -- The clock stepped back: the count comes along. After a step of less than a period the window stays until it is over;
      -- otherwise the count would be dropped as soon as the clock is back.
      state.window, state.changed = charge.window, true
    end
  end

  local function judge(state, charge)
    charge.passes = charge.cost == 0 or state.count + charge.cost <= charge.limit
  end

  local function take(state, charge)
    state.count, state.changed = state.count + charge.cost, true
  end

  local function debit(state, charge)
    state.count, state.changed = counted_up(state.count, charge), true
  end

  local function give_back(state, charge, at)
    if at <= now and floor((at + charge.period - charge.offset) / charge.period) == state.window then
      state.count, state.changed = max(state.count - charge.cost, 0), true
    end
  end

  local function expiry(state, charge)
    state.expires = (state.window + 1) * charge.period + charge.offset
  end

  local function form(state)
    state.text = pack('<Bdd', 248, state.window, state.count)
  end

  return {
    parse = parse, fresh = fresh, read = read, advance = advance, judge = judge, take = take, debit = debit,
    give_back = give_back, expiry = expiry, form = form,
  }
end
