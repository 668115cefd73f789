-- GCRA: a bucket that drains at limit/period. The state is the point in time at which the bucket will be empty and the budget
-- full again: whole microseconds `at`, and a `rest` in fractions of the quota's denominator.
--
--   state   tag B, at d [, rest I4, mark I2, parts B [, last I7, at most 32 credits, the oldest first:
--           at I7, from I7, length I7, last I7]]
--   charge  how long the cost takes to drain: us d; how long a full budget takes: full d; tag B, denominator d; and the
--           rests of both: rest d, full_rest d
--
-- The tag is 128 + n, of the quota that wrote the state: its full drain is 2^n microseconds or more, and less than twice that.
-- Expiries stand at ends of cells of that width (of 2^10 at least), so that most writes leave the expiry alone. If more is owed
-- than a full budget, the full drain is 2^n and `parts` thirty-seconds of that, or a little more; so a quota with a shorter
-- drain knows how much to leave alone: see `furthest`. The mark is the rest's denominator modulo 65,521, because a rest of
-- another quota is another fraction: see `stands`. Credits are there once a charge was given back, see `give_back`, until the
-- latest of their ends, which stands before them. Only a credit reads them, since that costs as much as ten decisions. Whatever
-- they hold, they only reduce later credits.
--
-- A state in whose queue requests wait has another form, and charges of a quota under which they may have more numbers: see
-- waiting.lua. So have those of a quota that warms up: see warming.lua.
local function gcra(algorithm)
  local SHORT, LONG, HEAD, CREDIT, TOLD_APART, COARSENESS, LONGEST = 9, 16, 23, 28, 32, 2, 2 ^ 52
  local PARTS, LARGEST_TAG, QUEUED, WAITING, WARMING = 32, 176, 177, 7, 11
  -- The offset of the parts of the first credit in a list of credits, four numbers each.
  local AT, FROM, LENGTH, LAST, NEXT = 0, 1, 2, 3, 4

  -- The distance of a point ahead of now; zero if it has passed.
  local function ahead(us, rest)
    if us < now then
      return 0, 0
    end
    return us - now, rest
  end

  -- The point of a state as this quota counts. A rest of another quota is less than a microsecond, and is rounded to the strict
  -- side.
  local function stands(state, quota)
    if state.rest > 0 and (state.mark ~= quota.mark or state.rest >= quota.denominator) then
      return state.at + 1, 0
    end
    return state.at, state.rest
  end

  -- The parts that stand for a full drain of this quota.
  local function parts_of(quota)
    return quota.parts or max(floor((quota.full / 2 ^ (quota.tag - 128) - 1) * PARTS), 0)
  end

  -- Says whether a quota of a longer drain wrote the state.
  local function is_of_longer(state, quota)
    return state.tag > quota.tag or (state.tag == quota.tag and state.parts > parts_of(quota))
  end

  local function is_before(us, rest, other_us, other_rest)
    return us < other_us or (us == other_us and rest < other_rest)
  end

  -- The rules of waiting.lua and warming.lua, made only if a charge may wait or a quota warms up. One function gives both: each
  -- name that a rule's functions use costs, whether it is needed or not.
  local part, turns, store

  -- Drops credits, turns and a store that have lost their meaning. Otherwise the state of a key that is always in use would carry
  -- them for ever.
  local function forget_dead_notes(state)
    local queue, last = state.queue, state.last
    if queue then
      last = max(last, part('turns').relevant_until(queue))
    end
    if (queue or last > 0 or state.cold) and last <= now then
      -- So that it is written whole.
      state.credits, state.last, state.length, state.queue = '', 0, 0, nil
      if state.cold and part('store').cold_from(state) <= now then
        state.cold = nil
      end
    end
  end

  -- Moves the state to this far ahead of now.
  local function leave(state, quota, us, rest)
    local at = now + us
    if at == state.at and rest == state.rest then
      return
    end
    if not is_before(quota.full, quota.full_rest, us, rest) then
      state.tag, state.parts = quota.tag, 0
    elseif not is_before(quota.full, quota.full_rest, ahead(stands(state, quota))) or not is_of_longer(state, quota) then
      state.tag, state.parts = quota.tag, parts_of(quota)
    end
    state.at, state.rest, state.mark, state.changed = at, rest, quota.mark, true
    forget_dead_notes(state)
  end

  local function quota(run, pos)
    local us, full, tag, denominator, rest, full_rest, after = unpack('<ddBddd', run, pos)
    local quota = {
      us = us, rest = rest, denominator = denominator, mark = denominator % MARKS, tag = tag, full = full,
      full_rest = full_rest, latest = now + full,
    }
    if algorithm == WAITING then
      quota.wait, quota.parts, after = unpack('<dB', run, after)
    elseif algorithm == WARMING then
      quota.parts, quota.spent, quota.warm, quota.step, quota.steps, quota.surcharge, after = unpack('<Bddddd', run, after)
    end
    return quota, us + rest, after
  end

  -- The furthest that a state may lie ahead of now: its largest debt, by the longer drain of two quotas, this one and the one
  -- that wrote it. The other's drain is stored rounded down, but is still no shorter: drains are told apart in whole
  -- microseconds.
  local function furthest(state, quota)
    local of = is_of_longer(state, quota) and state or quota
    if of.parts then
      return floor(2 ^ (of.tag - 128) * (PARTS + of.parts) / PARTS) * DEBT_CEILING, 0
    end
    local rests = quota.full_rest * DEBT_CEILING
    return quota.full * DEBT_CEILING + floor(rests / quota.denominator), rests % quota.denominator
  end

  local function fresh()
    return {
      at = 0, rest = 0, mark = 0, tag = 128, parts = 0, last = 0, found = '', found_tag = 0, length = 0, from = 0, changed = false,
    }
  end

  local function read(found)
    local WARMED, length = 178, #found
    -- The error of a value of another type has no length, and no bytes.
    if length > LONG and byte(found) == QUEUED then
      return part('turns').read(found)
    elseif length > LONG and byte(found) == WARMED then
      return part('store').read(found)
    end
    local count = (length - HEAD) / CREDIT
    if length ~= SHORT and length ~= LONG and (count < 1 or count % 1 ~= 0 or count > TOLD_APART) then
      return false
    end
    local tag, at = unpack('<Bd', found)
    if tag < 128 or tag > LARGEST_TAG or not is_whole(at) then
      return false
    end
    local state = {
      at = at, rest = 0, mark = 0, tag = tag, parts = 0, last = 0, found = found, found_tag = tag, length = length, from = at,
      changed = false,
    }
    if length > SHORT then
      state.rest, state.mark, state.parts = unpack('<I4I2B', found, SHORT + 1)
      state.from = at + 1
      if state.parts >= PARTS then
        return false
      end
    end
    if length > LONG then
      state.last = unpack('<I7', found, LONG + 1)
      state.from = max(state.from, state.last)
      if not is_whole(state.last) then
        return false
      end
    end
    return state
  end

  -- A state lies further ahead than a burst only with a debt, after a clock stepped back, or under a quota with a smaller
  -- budget than the one before.
  local function rebase(state, quota)
    if state.at < quota.latest then
      return
    end
    local us, rest = ahead(stands(state, quota))
    local most_us, most_rest = furthest(state, quota)
    if is_before(most_us, most_rest, us, rest) then
      leave(state, quota, most_us, most_rest)
      -- Turns were promised by a clock that no longer counts, and idle time was stored by it.
      state.queue, state.cold, state.length = nil, nil, state.queue and 0 or state.length
    end
  end

  -- Keeps the point to which the charge would move the state, for `take`.
  local function passes(state, charge)
    local quota, admitted = charge.quota, nil
    local at, rest = stands(state, quota)
    admitted, charge.to, charge.to_rest = admit(at, rest, quota.us, quota.rest, quota.denominator, quota.latest,
      quota.full_rest, 1)
    return admitted == 1 or charge.cost == 0
  end

  -- Takes a charge that was just asked for passage, from a state that nothing else has touched since.
  local function take(state, charge)
    local quota = charge.quota
    state.at, state.rest, state.mark, state.changed = charge.to, charge.to_rest, quota.mark, true
    state.tag, state.parts = quota.tag, 0
    forget_dead_notes(state)
  end

  local function debit(state, charge)
    local quota = charge.quota
    local left_us, left_rest = ahead(stands(state, quota))
    local most_us, most_rest = furthest(state, quota)
    local us, rest = left_us + quota.us, left_rest + quota.rest
    local more, left_in_store
    if quota.warm then
      more, left_in_store = part('store').spend(state, quota, left_us, left_rest)
      us = us + more
    end
    if rest >= quota.denominator then
      us, rest = us + 1, rest - quota.denominator
    end
    if is_before(most_us, most_rest, us, rest) then
      us, rest = most_us, most_rest
    end
    -- A state further ahead, left by a clock that stepped back, is for a decision to bring back.
    if is_before(us, rest, left_us, left_rest) then
      us, rest = left_us, left_rest
    end
    leave(state, quota, us, rest)
    if quota.warm then
      part('store').keep(state, quota, us, rest, left_in_store)
    end
  end

  -- The credits in a state.
  local function packed(state)
    return state.credits or state.found:sub(HEAD + 1)
  end

  local function credits_of(state)
    local credits = packed(state)
    local count = #credits / CREDIT * NEXT
    credits = { unpack('<' .. ('I7'):rep(count), credits) }
    -- The offset of the next credit.
    credits[count + 1] = nil
    return credits
  end

  -- The present place of a charge that was made at `at` and then stood at (us, rest). Charges stand in a queue, each in the
  -- stretch of time in which it drains. A credit takes a stretch out, and every charge behind it moves up.
  local function moved_up(credits, at, us, rest)
    for c = 1, #credits, NEXT do
      local from = credits[c + FROM]
      if at <= credits[c + AT] and is_before(from, 0, us, rest) then
        us = max(us - credits[c + LENGTH], 0)
        if is_before(us, rest, from, 0) then
          us, rest = from, 0
        end
      end
    end
    return us, rest
  end

  -- Remembers what a later credit must know. Merged credits err on the strict side.
  local function remember(state, credits, from, length, last)
    local kept, size, latest = {}, 0, last
    for c = 1, #credits, NEXT do
      if credits[c + LAST] > now then
        for part = AT, LAST do
          kept[size + 1 + part] = credits[c + part]
        end
        size, latest = size + NEXT, max(latest, credits[c + LAST])
      end
    end
    if size == TOLD_APART * NEXT then
      -- The oldest two neighbours that together are small beside all that came after them.
      local older, after = 1, 0
      for c = size + 1 - 2 * NEXT, 1, -NEXT do
        local newer = kept[c + NEXT + LENGTH]
        if (kept[c + LENGTH] + newer) * COARSENESS <= after then
          older = c
        end
        after = after + newer
      end
      local newer = older + NEXT
      kept[newer + FROM] = min(kept[newer + FROM], kept[older + FROM])
      kept[newer + LENGTH] = min(kept[newer + LENGTH] + kept[older + LENGTH], LONGEST)
      kept[newer + LAST] = max(kept[newer + LAST], kept[older + LAST])
      for c = older, size - NEXT do
        kept[c] = kept[c + NEXT]
      end
      size = size - NEXT
    end
    kept[size + 1 + AT], kept[size + 1 + FROM], kept[size + 1 + LENGTH], kept[size + 1 + LAST] = now, from, length, last
    size = size + NEXT
    state.credits, state.last = pack('<' .. ('I7'):rep(size), spread(kept, 1, size)), latest
    -- So that it is written whole.
    state.length, state.changed = 0, true
  end

  local function less(quota, us, rest, less_us, less_rest)
    if rest < less_rest then
      return us - less_us - 1, rest + quota.denominator - less_rest
    end
    return us - less_us, rest - less_rest
  end

  -- At most the time for which the charge still shows in the state comes back: from now to its place.
  local function give_back(state, charge, at, full_us, full_rest)
    -- A charge from the future: the clock stepped back, and no credit is certain.
    if at > now or (charge.quota.wait and part('turns').leave_queue(state, charge.quota, full_us, full_rest)) then
      return
    end
    if state.queue and not part('turns').let_credit(state) then
      return
    end
    local quota = charge.quota
    local credits = credits_of(state)
    local place_us, place_rest = moved_up(credits, at, full_us, full_rest)
    -- No charge drains before it was made.
    if is_before(place_us, place_rest, at + quota.us, quota.rest) then
      place_us, place_rest = at + quota.us, quota.rest
    end
    local shows_us, shows_rest = ahead(place_us, place_rest)
    local left_us, left_rest = ahead(stands(state, quota))
    local most_us, most_rest = shows_us, shows_rest
    if is_before(left_us, left_rest, most_us, most_rest) then
      most_us, most_rest = left_us, left_rest
    end
    local us, rest, back_in_store = quota.us, quota.rest, nil
    if quota.warm then
      us, rest, back_in_store =
        part('store').restore(state, quota, left_us, left_rest, max(full_us - place_us, 0), most_us, most_rest)
    elseif is_before(most_us, most_rest, us, rest) then
      us, rest = most_us, most_rest
    end
    if us == 0 and rest == 0 then
      return
    end
    local last, from = state.at + (state.rest > 0 and 1 or 0), less(quota, shows_us, shows_rest, us, rest)
    left_us, left_rest = less(quota, left_us, left_rest, us, rest)
    leave(state, quota, left_us, left_rest)
    remember(state, credits, now + from, us + (rest > 0 and 1 or 0), last)
    if quota.warm then
      part('store').keep(state, quota, left_us, left_rest, back_in_store)
    end
  end

  -- Overwrites in place if the expiry stays: in the same cell, of the same width.
  local function write(key, state, quota)
    local at, rest, last, tag, parts, cell = state.at, state.rest, state.last, state.tag, state.parts, cell_of(state.tag)
    local is_short = rest == 0 and parts == 0 and last == 0
    local stays_short = state.length == SHORT and is_short
    if tag == state.found_tag and (stays_short or state.length > SHORT) then
      local ends = stays_short and at or max(at + 1, last)
      if ends - ends % cell == state.from - state.from % cell then
        return redis.call('SETRANGE', key, '1', stays_short and pack('<d', at)
          or pack('<dI4I2B', at, rest, state.mark, parts))
      end
    end
    local value, ends = pack('<Bd', tag, at), at
    if state.queue then
      value, ends = part('turns').packed(state), at + 1
    elseif not is_short then
      value, ends = value .. pack('<I4I2B', rest, state.mark, parts), at + 1
    end
    if last > 0 then
      value, ends = value .. pack('<I7', last) .. packed(state), max(ends, last)
    end
    if state.cold then
      value, ends = part('store').head(state) .. value, max(ends, part('store').cold_from(state))
    end
    set_until(key, value, ends - ends % cell + cell)
  end

  function part(of)
    if of == 'turns' then
      turns = turns or waiting(read, ahead, stands, is_before, less, leave)
      return turns
    end
    store = store or warming(now, is_whole, read, ahead, stands, leave, is_before, less)
    return store
  end

  return {
    quota = quota,
    fresh = fresh,
    read = read,
    rebase = rebase,
    passes = algorithm == WAITING and part('turns').passes or passes,
    take = algorithm == WAITING and part('turns').take or algorithm == WARMING and part('store').take or take,
    debit = debit,
    give_back = give_back,
    write = write,
  }
end
