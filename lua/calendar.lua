-- A count that starts anew in each window of a calendar. The script knows no time zones: a charge comes with the bounds of two
-- windows each way around its process's time, of which the server's time chooses one, and with the end of the window after them.
-- A state keeps the bounds of its window, so that processes that know different versions of a zone begin none before it is over.
--
--   state   tag B (255), start d, end d, count d
--   charge  cost d, limit d, bounds 7 d
local function calendar()
  local TAG, LENGTH = 255, 25

  local function quota(run, pos)
    local cost, limit, first, second, third, fourth, fifth, sixth, last, after = unpack('<ddddddddd', run, pos)
    local starts, ends, next_ends
    if now < fourth then
      if now >= third then
        starts, ends, next_ends = third, fourth, fifth
      elseif now >= second then
        starts, ends, next_ends = second, third, fourth
      elseif now >= first then
        starts, ends, next_ends = first, second, third
      end
    elseif now < fifth then
      starts, ends, next_ends = fourth, fifth, sixth
    elseif now < sixth then
      starts, ends, next_ends = fifth, sixth, last
    end
    return { limit = limit, starts = starts, ends = ends, next_ends = next_ends, is_outside = not starts }, cost, after
  end

  local function fresh()
    return { starts = 0, ends = 0, count = 0, changed = false, found = false }
  end

  local function read(found)
    if #found ~= LENGTH then
      return false
    end
    local tag, starts, ends, count = unpack('<Bddd', found)
    return tag == TAG and is_whole(starts) and is_whole(ends) and is_whole(count) and starts < ends
      and { starts = starts, ends = ends, count = count, changed = false, found = ends }
  end

  local function advance(state, quota)
    if quota.is_outside then
      return
    elseif now >= state.ends then
      -- Earlier charges belong to the window that is over.
      state.starts, state.ends, state.count, state.changed = max(quota.starts, state.ends), quota.ends, 0, true
    elseif now < state.starts and state.ends > quota.next_ends then
      -- The clock stepped back: the count comes along. After a step of less than a window the state stays until it is over;
      -- otherwise the count would be dropped as soon as the clock is back.
      state.starts, state.ends, state.changed = quota.starts, quota.ends, true
    end
  end

  local function passes(state, charge)
    return charge.cost == 0 or state.count + charge.cost <= charge.quota.limit
  end

  local function take(state, charge)
    state.count, state.changed = state.count + charge.cost, true
  end

  local function debit(state, charge)
    if not charge.quota.is_outside then
      state.count, state.changed = counted_up(state.count, charge), true
    end
  end

  local function give_back(state, charge, at)
    if at <= now and at >= state.starts and not charge.quota.is_outside then
      state.count, state.changed = max(state.count - charge.cost, 0), true
    end
  end

  local function write(key, state)
    if state.ends == state.found then
      return redis.call('SETRANGE', key, '17', pack('<d', state.count))
    end
    set_until(key, pack('<Bddd', TAG, state.starts, state.ends, state.count), 2 * state.ends - state.starts)
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
