-- GCRA: a bucket that drains at limit/period. The state is the point in time at which it will be empty, that is, the
-- budget full again: whole microseconds `at`, and a `rest` in fractions of the quota's denominator.
--
--   state   tag B, at d [, rest I4 [, at most 32 credits, the oldest first: at d, from d, length d, last d]]
--   charge  how long the cost takes to drain: us d; how long a full budget takes: full d; tag B, denominator d; and the
--           rests of both: rest d, full_rest d
--
-- The tag is 128 + n: expiries stand at ends of cells of 2^n microseconds, so that most writes leave the expiry alone.
-- Credits are there once something was given back, see `give_back`.
local function gcra()
  local SHORT, LONG, CREDIT, TOLD_APART, COARSENESS, LONGEST = 9, 13, 32, 32, 2, 2 ^ 52

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
    local us, full, tag, denominator, rest, full_rest, after = unpack('<ddBddd', run, pos)
    return {
      us = us, rest = rest, denominator = denominator, tag = tag, cell = 2 ^ (tag - 128), full = full,
      full_rest = full_rest, latest = now + full,
    }, us + rest, after
  end

  -- How far ahead of now a budget may lie that owes all that it can.
  local function ceiling(quota)
    local rests = quota.full_rest * DEBT_CEILING
    return quota.full * DEBT_CEILING + floor(rests / quota.denominator), rests % quota.denominator
  end

  local function fresh()
    return { at = 0, rest = 0, tag = 0, length = 0, from = 0, credits = false, changed = false }
  end

  local function read(found)
    local length = #found
    local count = max((length - LONG) / CREDIT, 0)
    if length ~= SHORT and (length < LONG or count % 1 ~= 0 or count > TOLD_APART) then
      return false
    end
    local tag, at = unpack('<Bd', found)
    if tag < 128 or tag >= 192 or not is_whole(at) then
      return false
    end
    local state = { at = at, rest = 0, tag = tag, length = length, from = at, credits = false, changed = false }
    if length > SHORT then
      state.rest = unpack('<I4', found, 10)
      state.from = at + 1
    end
    if count > 0 then
      state.credits = {}
      for c = 1, count do
        local given, from, taken, last = unpack('<dddd', found, LONG + 1 + (c - 1) * CREDIT)
        if not (is_whole(given) and is_whole(from) and is_whole(taken) and is_whole(last)) then
          return false
        end
        state.credits[c] = { at = given, from = from, length = taken, last = last }
      end
    end
    return state
  end

  -- Further ahead than a burst only with a debt, after a clock stepped back, or under a quota that holds less than the one
  -- before.
  local function rebase(state, quota)
    if state.at < quota.latest then
      return
    end
    local us, rest = ahead(quota, state.at, state.rest)
    if is_before(quota.full, quota.full_rest, us, rest) then
      local most_us, most_rest = ceiling(quota)
      if is_before(most_us, most_rest, us, rest) then
        us, rest = most_us, most_rest
      end
      set(state, now + us, rest)
    end
  end

  -- Keeps where the charge would leave the state, for `take`.
  local function passes(state, charge)
    local quota, at, rest, admitted = charge.quota, state.at, state.rest, nil
    if rest >= quota.denominator and at >= now then
      at, rest = at + 1, 0
    end
    admitted, charge.to, charge.to_rest = admit(at, rest, quota.us, quota.rest, quota.denominator, quota.latest,
      quota.full_rest, 1)
    return admitted == 1 or charge.cost == 0
  end

  -- A charge that was just asked for passage, of a state that nothing else has touched since.
  local function take(state, charge)
    state.at, state.rest, state.changed = charge.to, charge.to_rest, true
  end

  local function debit(state, charge)
    local quota = charge.quota
    local us, rest = ahead(quota, state.at, state.rest)
    local most_us, most_rest = ceiling(quota)
    us, rest = us + quota.us, rest + quota.rest
    if rest >= quota.denominator then
      us, rest = us + 1, rest - quota.denominator
    end
    if is_before(most_us, most_rest, us, rest) then
      us, rest = most_us, most_rest
    end
    -- What lies further ahead already, since a clock stepped back, is for a decision to bring back.
    local left_us, left_rest = ahead(quota, state.at, state.rest)
    if is_before(us, rest, left_us, left_rest) then
      us, rest = left_us, left_rest
    end
    set(state, now + us, rest)
  end

  -- Where a charge stands by now that was made at `at` and then stood at (us, rest). Charges stand in a queue, each in the
  -- stretch of time in which it drains. A credit takes a stretch out, and whoever stands behind it moves up.
  local function moved_up(credits, at, us, rest)
    for c = 1, #credits do
      local credit = credits[c]
      if at <= credit.at and is_before(credit.from, 0, us, rest) then
        us = max(us - credit.length, 0)
        if is_before(us, rest, credit.from, 0) then
          us, rest = credit.from, 0
        end
      end
    end
    return us, rest
  end

  -- Remembers what a later credit must know. What is merged errs on the strict side.
  local function remember(credits, credit)
    local kept = {}
    for c = 1, #credits do
      if credits[c].last > now then
        kept[#kept + 1] = credits[c]
      end
    end
    if #kept == TOLD_APART then
      -- The oldest two neighbours that together are small beside what came after them.
      local found, after = 1, 0
      for c = #kept - 1, 1, -1 do
        local newer = kept[c + 1].length
        if (kept[c].length + newer) * COARSENESS <= after then
          found = c
        end
        after = after + newer
      end
      local older = table.remove(kept, found)
      local newer = kept[found]
      newer.from, newer.last = min(newer.from, older.from), max(newer.last, older.last)
      newer.length = min(newer.length + older.length, LONGEST)
    end
    kept[#kept + 1] = credit
    return kept
  end

  local function less(quota, us, rest, less_us, less_rest)
    if rest < less_rest then
      return us - less_us - 1, rest + quota.denominator - less_rest
    end
    return us - less_us, rest - less_rest
  end

  -- At most the time for which the charge still shows in the state comes back: from now to where it stands.
  local function give_back(state, charge, at, full_us, full_rest)
    local quota = charge.quota
    local shows_us, shows_rest = ahead(quota, moved_up(state.credits or {}, at, full_us, full_rest))
    local left_us, left_rest = ahead(quota, state.at, state.rest)
    local us, rest = quota.us, quota.rest
    if is_before(shows_us, shows_rest, us, rest) then
      us, rest = shows_us, shows_rest
    end
    if is_before(left_us, left_rest, us, rest) then
      us, rest = left_us, left_rest
    end
    -- A charge from the future: the clock stepped back, and nothing is certain.
    if (us == 0 and rest == 0) or at > now then
      return
    end
    local last, from = state.at + (state.rest > 0 and 1 or 0), less(quota, shows_us, shows_rest, us, rest)
    left_us, left_rest = less(quota, left_us, left_rest, us, rest)
    set(state, now + left_us, left_rest)
    local credit = { at = now, from = now + from, length = us + (rest > 0 and 1 or 0), last = last }
    state.credits, state.changed = remember(state.credits or {}, credit), true
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
    if credits or rest > 0 then
      value, ends = value .. pack('<I4', rest), at + 1
    end
    for c = 1, credits and #credits or 0 do
      local credit = credits[c]
      value = value .. pack('<dddd', credit.at, credit.from, credit.length, credit.last)
      ends = max(ends, credit.last)
    end
    set_until(key, value, ends - ends % cell + cell)
  end

  return {
    quota = quota,
    fresh = fresh,
    read = read,
    rebase = rebase,
    passes = passes,
    take = take,
    debit = debit,
    give_back = give_back,
    write = write,
  }
end
