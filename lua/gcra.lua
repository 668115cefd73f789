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
  local CREDIT, TOLD_APART, COARSENESS, LONGEST = 28, 32, 2, 2 ^ 52
  local PARTS, QUEUED, WARMED, WAITING, WARMING = 32, 177, 178, 7, 11
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
  local function stands(state, charge)
    if state.rest > 0 and (state.mark ~= charge.mark or state.rest >= charge.denominator) then
      return state.at + 1, 0
    end
    return state.at, state.rest
  end

  -- The parts that stand for a full drain of this quota.
  local function parts_of(charge)
    return charge.parts or max(floor((charge.full / 2 ^ (charge.tag - 128) - 1) * PARTS), 0)
  end

  -- Says whether a quota of a longer drain wrote the state.
  local function is_of_longer(state, charge)
    return state.tag > charge.tag or (state.tag == charge.tag and state.parts > parts_of(charge))
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
      state.credits, state.last, state.queue = '', 0, nil
      if state.cold and part('store').cold_from(state) <= now then
        state.cold = nil
      end
    end
  end

  -- Moves the state to this far ahead of now.
  local function leave(state, charge, us, rest)
    local at = now + us
    if at == state.at and rest == state.rest then
      return
    end
    if not is_before(charge.full, charge.full_rest, us, rest) then
      state.tag, state.parts = charge.tag, 0
    elseif not is_before(charge.full, charge.full_rest, ahead(stands(state, charge))) or not is_of_longer(state, charge) then
      state.tag, state.parts = charge.tag, parts_of(charge)
    end
    state.at, state.rest, state.mark, state.changed = at, rest, charge.mark, true
    forget_dead_notes(state)
  end

  local function parse(charge, run, pos)
    charge.us, charge.full, charge.tag, charge.denominator, charge.rest, charge.full_rest, pos = unpack('<ddBddd', run, pos)
    charge.cost, charge.mark, charge.latest = charge.us + charge.rest, charge.denominator % 65521, now + charge.full
    return pos
  end

  local function parse_any(charge, run, pos)
    pos = parse(charge, run, pos)
    if algorithm == WAITING then
      charge.longest_wait, charge.parts, pos = unpack('<dB', run, pos)
    elseif algorithm == WARMING then
      charge.parts, charge.spent, charge.warm, charge.step, charge.steps, charge.surcharge, pos = unpack('<Bddddd', run, pos)
    end
    return pos
  end

  -- The furthest that a state may lie ahead of now: its largest debt, by the longer drain of two quotas, this one and the one
  -- that wrote it. The other's drain is stored rounded down, but is still no shorter: drains are told apart in whole
  -- microseconds.
  local function furthest(state, charge)
    local of = is_of_longer(state, charge) and state or charge
    if of.parts then
      return floor(2 ^ (of.tag - 128) * (PARTS + of.parts) / PARTS) * DEBT_CEILING, 0
    end
    local rests = charge.full_rest * DEBT_CEILING
    return charge.full * DEBT_CEILING + floor(rests / charge.denominator), rests % charge.denominator
  end

  local function fresh(state)
    state.at, state.rest, state.mark, state.tag, state.parts, state.last = 0, 0, 0, 128, 0, 0
  end

  local function read(state, text)
    local length, is_note = #text, true
    state.rest, state.mark, state.parts, state.last = 0, 0, 0, 0
    if length == 9 then
      state.tag, state.at = unpack('<Bd', text)
    elseif length > 15 then
      state.tag, state.at, state.rest, state.mark, state.parts = unpack('<BdI4I2B', text)
      if length > 16 then
        local credits = (length - 23) / 28
        is_note = credits >= 1 and credits % 1 == 0 and credits <= 32
        if is_note then
          state.last = unpack('<I7', text, 17)
        end
      end
    else
      state.tag = 0
    end
    state.is_known = is_note and state.tag > 127 and state.tag < 177 and state.parts < 32 and is_whole(state.at) and is_whole(state.last)
  end

  local function read_any(state, text)
    -- The error of a value of another type has no length, and no bytes.
    local form = #text > 16 and byte(text)
    if form == QUEUED then
      part('turns').read(state, text)
    elseif form == WARMED then
      part('store').read(state, text)
    else
      read(state, text)
      state.found = text
    end
  end

  -- The credits as text: the state as it was found has them behind its head.
  local function credits_text(state)
    return state.credits or state.found and state.found:sub(24) or ''
  end

  -- A composed script leaves a state that lies further ahead than any debt of its quota to the general one.
  local function advance(state, charge)
    state.is_known = state.is_known and state.at <= now + charge.full * 8
  end

  -- A state lies further ahead than a burst only with a debt, after a clock stepped back, or under a quota with a smaller
  -- budget than the one before.
  local function rebase(state, charge)
    if state.at < charge.latest then
      return
    end
    local us, rest = ahead(stands(state, charge))
    local most_us, most_rest = furthest(state, charge)
    if is_before(most_us, most_rest, us, rest) then
      leave(state, charge, most_us, most_rest)
      -- Turns were promised by a clock that no longer counts, and idle time was stored by it.
      state.queue, state.cold = nil, nil
    end
  end

  -- Keeps the point to which the charge would move the state, for `take`.
  local function judge(state, charge)
    local at, rest = state.at, state.rest
    if rest > 0 and (state.mark ~= charge.mark or rest >= charge.denominator) then
      at, rest = at + 1, 0
    end
    if at < now then
      at, rest = now, 0
    end
    at, rest = at + charge.us, rest + charge.rest
    if rest >= charge.denominator then
      at, rest = at + 1, rest - charge.denominator
    end
    charge.to, charge.to_rest = at, rest
    charge.passes = charge.cost == 0 or at < charge.latest or at == charge.latest and rest <= charge.full_rest
  end

  -- Takes a charge that was just judged, from a state that nothing else has touched since.
  local function take(state, charge)
    state.at, state.rest, state.mark, state.changed = charge.to, charge.to_rest, charge.mark, true
    state.tag, state.parts = charge.tag, 0
    if state.last > 0 and state.last <= now and not state.queue and not state.cold then
      state.credits, state.last = '', 0
    end
  end

  local function take_any(state, charge)
    take(state, charge)
    forget_dead_notes(state)
  end

  local function debit(state, charge)
    local left_us, left_rest = ahead(stands(state, charge))
    local most_us, most_rest = furthest(state, charge)
    local us, rest = left_us + charge.us, left_rest + charge.rest
    local more, left_in_store
    if charge.warm then
      more, left_in_store = part('store').spend(state, charge, left_us, left_rest)
      us = us + more
    end
    if rest >= charge.denominator then
      us, rest = us + 1, rest - charge.denominator
    end
    if is_before(most_us, most_rest, us, rest) then
      us, rest = most_us, most_rest
    end
    -- A state further ahead, left by a clock that stepped back, is for a decision to bring back.
    if is_before(us, rest, left_us, left_rest) then
      us, rest = left_us, left_rest
    end
    leave(state, charge, us, rest)
    if charge.warm then
      part('store').keep(state, charge, us, rest, left_in_store)
    end
  end

  local function credits_of(state)
    local credits = credits_text(state)
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
    state.changed = true
  end

  local function less(charge, us, rest, less_us, less_rest)
    if rest < less_rest then
      return us - less_us - 1, rest + charge.denominator - less_rest
    end
    return us - less_us, rest - less_rest
  end

  -- At most the time for which the charge still shows in the state comes back: from now to its place.
  local function give_back(state, charge, at, full_us, full_rest)
    -- A charge from the future: the clock stepped back, and no credit is certain.
    if at > now or (charge.longest_wait and part('turns').leave_queue(state, charge, full_us, full_rest)) then
      return
    end
    if state.queue and not part('turns').let_credit(state) then
      return
    end
    local credits = credits_of(state)
    local place_us, place_rest = moved_up(credits, at, full_us, full_rest)
    -- No charge drains before it was made.
    if is_before(place_us, place_rest, at + charge.us, charge.rest) then
      place_us, place_rest = at + charge.us, charge.rest
    end
    local shows_us, shows_rest = ahead(place_us, place_rest)
    local left_us, left_rest = ahead(stands(state, charge))
    local most_us, most_rest = shows_us, shows_rest
    if is_before(left_us, left_rest, most_us, most_rest) then
      most_us, most_rest = left_us, left_rest
    end
    local us, rest, back_in_store = charge.us, charge.rest, nil
    if charge.warm then
      us, rest, back_in_store =
        part('store').restore(state, charge, left_us, left_rest, max(full_us - place_us, 0), most_us, most_rest)
    elseif is_before(most_us, most_rest, us, rest) then
      us, rest = most_us, most_rest
    end
    if us == 0 and rest == 0 then
      return
    end
    local last, from = state.at + (state.rest > 0 and 1 or 0), less(charge, shows_us, shows_rest, us, rest)
    left_us, left_rest = less(charge, left_us, left_rest, us, rest)
    leave(state, charge, left_us, left_rest)
    remember(state, credits, now + from, us + (rest > 0 and 1 or 0), last)
    if charge.warm then
      part('store').keep(state, charge, left_us, left_rest, back_in_store)
    end
  end

  local function expiry(state)
    local cell, ends = state.tag < 138 and 1024 or 2 ^ (state.tag - 128), state.at
    if state.rest > 0 or state.parts > 0 or state.last > 0 or state.queue then
      ends = max(ends + 1, state.last)
    end
    state.expires = ends - ends % cell + cell
  end

  local function expiry_any(state)
    local last = state.last
    if state.cold then
      state.last = max(last, part('store').cold_from(state))
    end
    expiry(state)
    state.last = last
  end

  local function form(state)
    -- The credits behind the head stay as they were found: each text of a kilobyte costs as much as a decision.
    state.is_head = state.last > 0
    if state.is_head then
      state.text = pack('<BdI4I2BI7', state.tag, state.at, state.rest, state.mark, state.parts, state.last)
    elseif state.rest > 0 or state.parts > 0 then
      state.text = pack('<BdI4I2B', state.tag, state.at, state.rest, state.mark, state.parts)
    else
      state.text = pack('<Bd', state.tag, state.at)
    end
  end

  local function form_any(state)
    if state.queue then
      state.text = part('turns').packed(state) .. (state.last > 0 and pack('<I7', state.last) .. credits_text(state) or '')
    else
      form(state)
      state.text = state.is_head and state.text .. credits_text(state) or state.text
    end
    if state.cold then
      state.text = part('store').head(state) .. state.text
    end
  end

  function part(of)
    if of == 'turns' then
      turns = turns or waiting(read, ahead, stands, is_before, less, leave)
      return turns
    end
    store = store or warming(now, is_whole, read_any, ahead, stands, leave, is_before, less)
    return store
  end

  return {
    parse = parse_any, fresh = fresh, read = read_any, rebase = rebase,
    judge = algorithm == WAITING and part('turns').judge or judge,
    take = algorithm == WAITING and part('turns').take or algorithm == WARMING and part('store').take or take_any,
    debit = debit, give_back = give_back, expiry = expiry_any, form = form_any,
  }
end
