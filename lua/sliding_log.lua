-- Each charge is remembered until it is a period old. The window is open at its start: (now − period, now].
--
--   state   tag B (251), before I4, then an entry for each microsecond in which anything was charged, the oldest first:
--           at d, total I4
--   charge  cost d, limit d, period d
--
-- Totals run on modulo 2^32: an entry's count is its total less that of the entry before it (the first one's: less
-- `before`). So the sum over all entries is one subtraction, and what has expired is found by bisection.
--
-- Entries stand in the order of time, whatever the clock does. While the clock is less than a period behind the newest entry,
-- new charges count as charged with that entry. Only a charge drops expired entries, and its time is no earlier than that of
-- any charge that dropped some before. So a clock that steps back and forth, however often, gains its largest step once and no
-- more.
local function sliding_log()
  local HEAD, ENTRY, WRAP = 5, 12, 2 ^ 32
  -- The number of entries that are read at once.
  local CHUNK = 256
  -- The most entries of admitted charges: one for each unit of the largest limit. Every entry behind them is debt.
  local MOST = 1024

  local function entry(log, i)
    return unpack('<dI4', log, HEAD + 1 + (i - 1) * ENTRY)
  end

  local function total_before(state, i)
    if i == 1 then
      return state.before
    end
    local _, total = entry(state.log, i - 1)
    return total
  end

  -- The number of the first entry that is later than `time`, one past the last if none is.
  local function first_after(state, time)
    local low, high = 1, state.length + 1
    while low < high do
      local middle = floor((low + high) / 2)
      if entry(state.log, middle) > time then
        high = middle
      else
        low = middle + 1
      end
    end
    return low
  end

  -- Keeps the entries from first to last, between `before` and `more`.
  local function keep(state, first, last, more, before)
    local kept = state.log:sub(HEAD + 1 + (first - 1) * ENTRY, HEAD + last * ENTRY)
    state.log = state.log:sub(1, HEAD) .. (before or '') .. kept .. more
    state.length, state.changed = (#state.log - HEAD) / ENTRY, true
    if state.length > 0 then
      state.newest, state.total = entry(state.log, state.length)
    else
      state.newest, state.total = 0, state.before
    end
  end

  -- The entries from first to last, with `by` added to their totals.
  local function raised(state, first, last, by)
    local chunks = {}
    for from = first, last, CHUNK do
      local count = min(CHUNK, last - from + 1)
      local format = '<' .. ('dI4'):rep(count)
      local values = { unpack(format, state.log, HEAD + 1 + (from - 1) * ENTRY) }
      for total = 2, 2 * count, 2 do
        values[total] = (values[total] + by) % WRAP
      end
      chunks[#chunks + 1] = pack(format, spread(values, 1, 2 * count))
    end
    return table.concat(chunks)
  end

  -- The sum from the first entry that counts on. The total of an empty log is `before`, so its sum is 0.
  local function live(state)
    return (state.total - total_before(state, state.first)) % WRAP
  end

  -- Charges `count` now, or with the newest entry if that is later. Expired entries are dropped.
  local function add(state, count)
    if count > 0 then
      local first, last, at = state.first, state.length, max(now, state.newest)
      state.before = total_before(state, first)
      -- A debt waits for the latest of its debits.
      if state.newest == at or last - first + 1 > MOST then
        last = last - 1
      end
      keep(state, first, last, pack('<dI4', at, (state.total + count) % WRAP))
      state.first = 1
    end
  end

  local function parse(charge, run, pos)
    charge.cost, charge.limit, charge.period, pos = unpack('<ddd', run, pos)
    return pos
  end

  local function fresh(state)
    state.log, state.length, state.before, state.total, state.newest, state.first = pack('<BI4', 251, 0), 0, 0, 0, 0, 1
  end

  local function read(state, text)
    local length, tag, oldest = (#text - HEAD) / ENTRY, nil, nil
    if length >= 1 and length % 1 == 0 and length <= MOST + 1 then
      tag, state.before, oldest = unpack('<BI4d', text)
      state.newest, state.total = entry(text, length)
    end
    state.is_known = tag == 251 and is_whole(oldest) and is_whole(state.newest) and oldest <= state.newest
    state.log, state.length, state.first = text, length, 1
  end

  local function advance(state, charge)
    if state.length == 0 then
      return
    end
    if state.newest >= now + charge.period then
      -- The clock stepped back by a period or more: entries ahead of it count as charged now.
      local total = state.total
      keep(state, 1, first_after(state, now - 1) - 1, pack('<dI4', now, total))
    end
    state.first = entry(state.log, 1) <= now - charge.period and first_after(state, now - charge.period) or 1
  end

  local function judge(state, charge)
    charge.passes = charge.cost == 0 or live(state) + charge.cost <= charge.limit
  end

  local function take(state, charge)
    add(state, charge.cost)
  end

  local function debit(state, charge)
    local sum = live(state)
    add(state, counted_up(sum, charge) - sum)
  end

  -- A charge is entered at the time of the newest entry if the clock was behind that: `full_at`.
  local function give_back(state, charge, at, full_at)
    local i = first_after(state, full_at - 1)
    if at > now or i > state.length or i < state.first then
      return
    end
    local found_at, total = entry(state.log, i)
    if found_at ~= full_at then
      return
    end
    local count = (total - total_before(state, i)) % WRAP
    local back = min(charge.cost, count)
    if back == 0 then
      return
    end
    local later = back == count and i + 1 or i
    -- A count is the difference of two totals: either those before go up or those behind go down, whichever are fewer.
    if i <= state.length / 2 then
      state.before = (state.before + back) % WRAP
      keep(state, later, state.length, '', raised(state, 1, i - 1, back))
    else
      keep(state, 1, i - 1, raised(state, later, state.length, -back))
    end
  end

  local function expiry(state, charge)
    state.expires = state.newest + 2 * charge.period
  end

  local function form(state)
    state.text = state.length > 0 and pack('<BI4', 251, state.before) .. state.log:sub(HEAD + 1) or ''
  end

  return {
    parse = parse, fresh = fresh, read = read, advance = advance, judge = judge, take = take, debit = debit,
    give_back = give_back, expiry = expiry, form = form,
  }
end
