-- Turns of GCRA: a charge that does not fit now and may wait is taken now and passes later.
--
--   state   177 B, tag B, at d, rest I4, mark I2, parts B, until I7, of I2, gaps B, for each gap: start I7, rest I4, end I7,
--           rest I4 [, last I7, credits as in gcra.lua]
--   charge  number 7: that of gcra.lua, and: the longest wait d, parts B. The tag and the parts tell an eighth of the furthest
--           that a state may lie ahead, the wait included
--
-- Each charge drains in a stretch of time of its own, behind all that were taken before it. No two stretches overlap, and a
-- charge that passes at t drains between t and t and a full drain. A request that leaves before its turn frees its stretch, which
-- becomes a gap unless it was the last. The next charge that fits gets the gap; the others keep their places. No turn that was
-- promised is later than `until`. Until then a credit of a charge that has passed gives nothing back, since it would move others
-- up. `of` is the mark of the gaps' rests: 0 if there is no gap.
local function waiting(read, ahead, stands, is_before, less, leave)
  local QUEUED, HEAD, GAP, MOST, CREDIT, TOLD_APART = 177, 27, 22, 32, 28, 32

  local function rounded_up(us, rest)
    return rest > 0 and us + 1 or us
  end

  local function sum(charge, us, rest, more_us, more_rest)
    us, rest = us + more_us, rest + more_rest
    if rest >= charge.denominator then
      return us + 1, rest - charge.denominator
    end
    return us, rest
  end

  -- A point of a gap, ahead of now.
  local function ahead_of(charge, us, rest)
    if rest >= charge.denominator then
      us, rest = us + 1, 0
    end
    return ahead(us, rest)
  end

  local function gaps_of(state, charge)
    local queue = state.queue
    return queue and queue.of == charge.mark and queue.gaps or {}
  end

  local function relevant_until(queue)
    local last = queue.gaps[#queue.gaps]
    return last and max(queue.latest, rounded_up(last.to, last.to_rest)) or queue.latest
  end

  local function read_queued(state, text)
    local length = #text
    state.is_known = false
    if length < HEAD then
      return
    end
    local _, tag, at, rest, mark, parts, latest, of, count, pos = unpack('<BBdI4I2BI7I2B', text)
    local credits = (length - HEAD - count * GAP - 7) / CREDIT
    if count > MOST or (length ~= HEAD + count * GAP and (credits < 1 or credits % 1 ~= 0 or credits > TOLD_APART))
      or not is_whole(latest) then
      return
    end
    -- The head is checked as that of a state without a queue.
    read(state, pack('<BdI4I2B', tag, at, rest, mark, parts))
    if not state.is_known then
      return
    end
    state.is_known = false
    local gaps, from, to, from_rest, to_rest = {}, -1, -1, 0, 0
    for g = 1, count do
      local before, before_rest = to, to_rest
      from, from_rest, to, to_rest, pos = unpack('<I7I4I7I4', text, pos)
      if not is_before(before, before_rest, from, from_rest) or not is_before(from, from_rest, to, to_rest) or not is_whole(to) then
        return
      end
      gaps[g] = { from = from, from_rest = from_rest, to = to, to_rest = to_rest }
    end
    state.queue = { latest = latest, of = of, gaps = gaps }
    if pos <= length then
      state.last, pos = unpack('<I7', text, pos)
      state.credits = text:sub(pos)
    end
    state.is_known = is_whole(state.last)
  end

  -- The state as text.
  local function packed(state)
    local queue = state.queue
    local texts = {
      pack('<BBdI4I2BI7I2B', QUEUED, state.tag, state.at, state.rest, state.mark, state.parts, queue.latest,
        #queue.gaps > 0 and queue.of or 0, #queue.gaps),
    }
    for g = 1, #queue.gaps do
      local gap = queue.gaps[g]
      texts[g + 1] = pack('<I7I4I7I4', gap.from, gap.from_rest, gap.to, gap.to_rest)
    end
    return table.concat(texts)
  end

  -- The first stretch into which the charge fits: now at the end of the queue, in a gap, or later at the end of the queue. It is
  -- kept for `take`, ahead of now, with the time until the charge passes.
  local function judge(state, charge)
    local full, full_rest = charge.full, charge.full_rest
    charge.gap, charge.wait, charge.wait_rest, charge.passes = nil, 0, 0, charge.cost == 0
    -- No wait makes room for more than a full budget.
    if charge.passes or is_before(full, full_rest, charge.us, charge.rest) then
      return
    end
    local left, left_rest = ahead(stands(state, charge))
    local to, to_rest = sum(charge, left, left_rest, charge.us, charge.rest)
    if is_before(full, full_rest, to, to_rest) then
      local gaps = gaps_of(state, charge)
      for g = 1, #gaps do
        local gap = gaps[g]
        local from, from_rest = ahead_of(charge, gap.from, gap.from_rest)
        local in_gap, in_gap_rest = sum(charge, from, from_rest, charge.us, charge.rest)
        local ends, ends_rest = ahead_of(charge, gap.to, gap.to_rest)
        if not is_before(ends, ends_rest, in_gap, in_gap_rest) then
          charge.gap, to, to_rest = g, in_gap, in_gap_rest
          break
        end
      end
      if is_before(full, full_rest, to, to_rest) then
        charge.wait, charge.wait_rest = less(charge, to, to_rest, full, full_rest)
      end
    end
    charge.to, charge.to_rest = to, to_rest
    charge.passes = not is_before(charge.longest_wait, 0, charge.wait, charge.wait_rest)
  end

  -- Takes a charge that was just judged, from a state that nothing else has touched since.
  local function take(state, charge)
    local queue = state.queue
    if charge.wait > 0 or charge.wait_rest > 0 then
      queue = queue or { latest = 0, of = 0, gaps = {} }
      queue.latest = max(queue.latest, now + rounded_up(charge.wait, charge.wait_rest))
      state.queue = queue
    end
    if not charge.gap then
      return leave(state, charge, charge.to, charge.to_rest)
    end
    local gap, to = queue.gaps[charge.gap], now + charge.to
    if is_before(to, charge.to_rest, gap.to, gap.to_rest) then
      gap.from, gap.from_rest = to, charge.to_rest
    else
      table.remove(queue.gaps, charge.gap)
    end
    state.changed = true
  end

  -- Adds a gap, and joins it with those that it touches. One that overlaps another is of a receipt from before a reset.
  local function free(state, charge, from, from_rest, to, to_rest)
    local queue, kept, at = state.queue or { latest = 0, of = 0, gaps = {} }, {}, 1
    local gaps = queue.of == charge.mark and queue.gaps or {}
    for g = 1, #gaps do
      if rounded_up(gaps[g].to, gaps[g].to_rest) > now then
        kept[#kept + 1] = gaps[g]
      end
    end
    queue.of, queue.gaps = charge.mark, kept
    state.queue, state.changed = queue, true
    while kept[at] and not is_before(from, from_rest, kept[at].to, kept[at].to_rest) do
      at = at + 1
    end
    local before, next = kept[at - 1], kept[at]
    if next and is_before(next.from, next.from_rest, to, to_rest) then
      return
    end
    if next and next.from == to and next.from_rest == to_rest then
      to, to_rest = next.to, next.to_rest
      table.remove(kept, at)
    end
    if before and before.to == from and before.to_rest == from_rest then
      before.to, before.to_rest = to, to_rest
    else
      table.insert(kept, at, { from = from, from_rest = from_rest, to = to, to_rest = to_rest })
    end
    if #kept > MOST then
      table.remove(kept, 1)
    end
  end

  -- Frees the stretch of a charge whose turn has not come, or its last part. False if the turn has come.
  local function leave_queue(state, charge, full_us, full_rest)
    local to, to_rest = ahead(full_us, full_rest)
    if not is_before(charge.full, charge.full_rest, to, to_rest) then
      return false
    end
    local us, rest = charge.us, charge.rest
    if is_before(to, to_rest, us, rest) then
      us, rest = to, to_rest
    end
    local left, left_rest = ahead(stands(state, charge))
    if us == 0 and rest == 0 or is_before(left, left_rest, to, to_rest) then
      return true
    end
    local from, from_rest = less(charge, to, to_rest, us, rest)
    from = now + from
    if is_before(to, to_rest, left, left_rest) then
      free(state, charge, from, from_rest, now + to, to_rest)
      return true
    end
    -- Nothing stands behind it: the queue ends earlier, before the gap that it now ends with. No two gaps touch.
    local gaps = gaps_of(state, charge)
    local last = gaps[#gaps]
    if last and last.to == from and last.to_rest == from_rest then
      from, from_rest = last.from, last.from_rest
      gaps[#gaps] = nil
    end
    -- A charge passes no later than its stretch begins, so no turn lies beyond the end of the queue.
    local queue = state.queue
    if queue then
      queue.latest = min(queue.latest, rounded_up(from, from_rest))
    end
    leave(state, charge, ahead_of(charge, from, from_rest))
    return true
  end

  -- Says whether a charge that has passed may be given back. The charges behind it move up then, and a gap among them would not be
  -- where it was.
  local function let_credit(state)
    local queue = state.queue
    if queue.latest > now then
      return false
    end
    if #queue.gaps > 0 then
      queue.gaps, state.changed = {}, true
    end
    return true
  end

  return {
    relevant_until = relevant_until,
    read = read_queued,
    packed = packed,
    judge = judge,
    take = take,
    leave_queue = leave_queue,
    let_credit = let_credit,
  }
end

