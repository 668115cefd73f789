-- A count that starts anew in each window of a calendar. The script knows no time zones: a charge comes with the bounds of two
-- windows each way around its process's time, of which the server's time chooses one, and with the end of the window after them.
-- A state keeps the bounds of its window, so that processes that know different versions of a zone begin none before it is over.
--
--   state   tag B (255), start d, end d, count d
--   charge  cost d, limit d, bounds 7 d
local function calendar()
  local function parse(charge, run, pos)
    local first, second, third, fourth, fifth, sixth, last
    charge.cost, charge.limit, first, second, third, fourth, fifth, sixth, last, pos = unpack('<ddddddddd', run, pos)
    charge.is_outside = now < first or now >= sixth
    if now < second then
      charge.starts, charge.ends, charge.next_ends = first, second, third
    elseif now < third then
      charge.starts, charge.ends, charge.next_ends = second, third, fourth
    elseif now < fourth then
      charge.starts, charge.ends, charge.next_ends = third, fourth, fifth
    elseif now < fifth then
      charge.starts, charge.ends, charge.next_ends = fourth, fifth, sixth
    else
      charge.starts, charge.ends, charge.next_ends = fifth, sixth, last
    end
    return pos
  end

  local function fresh(state)
    state.starts, state.ends, state.count = 0, 0, 0
  end

  local function read(state, text)
    local tag
    if #text == 25 then
      tag, state.starts, state.ends, state.count = unpack('<Bddd', text)
    end
    state.is_known = tag == 255 and is_whole(state.starts) and is_whole(state.ends) and is_whole(state.count)
      and state.starts < state.ends
  end

  local function advance(state, charge)
    if charge.is_outside then
      -- Nothing is known of this time.
    elseif now >= state.ends then
      -- Earlier charges belong to the window that is over.
      state.starts, state.ends, state.count, state.changed = max(charge.starts, state.ends), charge.ends, 0, true
    elseif now < state.starts and state.ends > charge.next_ends then
      -- The clock stepped back: the count comes along. After a step of less than a window the state stays until it is over;
      -- otherwise the count would be dropped as soon as the clock is back.
      state.starts, state.ends, state.changed = charge.starts, charge.ends, true
    end
  end

  local function judge(state, charge)
    charge.passes = charge.cost == 0 or state.count + charge.cost <= charge.limit
  end

  local function take(state, charge)
    state.count, state.changed = state.count + charge.cost, true
  end

  local function debit(state, charge)
    if not charge.is_outside then
      state.count, state.changed = counted_up(state.count, charge), true
    end
  end

  local function give_back(state, charge, at)
    if at <= now and at >= state.starts and not charge.is_outside then
      state.count, state.changed = max(state.count - charge.cost, 0), true
    end
  end

  local function expiry(state)
    state.expires = 2 * state.ends - state.starts
  end

  local function form(state)
    state.text = pack('<Bddd', 255, state.starts, state.ends, state.count)
  end

  return {
    parse = parse, fresh = fresh, read = read, advance = advance, judge = judge, take = take, debit = debit,
    give_back = give_back, expiry = expiry, form = form,
  }
end
