-- A ban: strikes count for a time, and enough of them ban for a time. The next ban lasts twice as long, up to a bound, and each
-- quiet spell after a ban takes one doubling back.
--
--   state   tag B (253), level B, since d, ends d, kept d, then a time d for each strike, the oldest first: at most 64
--   charge  cost d, strikes B, onset B, within d, lasting d, longest d, forgiven d, guards I4
--
-- `level` is the number of doublings of the next ban, `since` and `ends` are those of the last one, and at `kept` all of this means
-- nothing any more. A cost is as many strikes. A ban guards the charges whose bits are set in `guards`; the first charge is bit 1.
-- A request is a strike if one of them is denied. The onset is 0 for strikes, 1 if a knock during the ban begins it anew, 2 for an
-- operator's ban, which begins at once and over any state, and 3 for a question that neither knocks nor guards a charge.
local function ban()
  local function parse(charge, run, pos)
    charge.cost, charge.strikes, charge.onset, charge.within, charge.lasting, charge.longest, charge.forgiven, charge.guards, pos =
      unpack('<dBBddddI4', run, pos)
    return pos
  end

  local function fresh(state)
    state.level, state.since, state.ends, state.kept, state.strikes = 0, 0, 0, 0, {}
  end

  local function read(state, text)
    local count, tag = (#text - 26) / 8, nil
    if count >= 0 and count <= 64 and count % 1 == 0 then
      tag, state.level, state.since, state.ends, state.kept = unpack('<BBddd', text)
    end
    state.is_known = tag == 253 and state.level < 64 and is_whole(state.since) and is_whole(state.ends) and is_whole(state.kept)
      and state.since <= state.ends
    state.strikes = {}
    local before = 0
    for i = 1, state.is_known and count or 0 do
      local at = unpack('<d', text, 19 + 8 * i)
      state.is_known = state.is_known and is_whole(at) and at >= before
      state.strikes[i], before = at, at
    end
  end

  -- A clock that stepped back starts the last ban anew, and strikes ahead of it count as made now.
  local function advance(state)
    if now < state.since then
      state.since, state.ends, state.changed = now, state.ends - state.since + now, true
    end
    local strikes = state.strikes
    for i = #strikes, 1, -1 do
      if strikes[i] <= now then
        break
      end
      strikes[i], state.changed = now, true
    end
  end

  local function judge(state, charge)
    -- An operator's ban begins over any other.
    charge.passes = now >= state.ends or charge.onset == 2
  end

  -- So many strikes at once. A ban lasts as long as the doublings say that no quiet spell has taken back.
  local function strike(state, charge, strikes)
    local live = {}
    for i = 1, #state.strikes do
      if state.strikes[i] + charge.within > now then
        live[#live + 1] = state.strikes[i]
      end
    end
    for _ = 1, min(strikes, charge.strikes) do
      live[#live + 1] = now
    end
    state.strikes, state.changed = live, true
    if #live >= charge.strikes then
      local level, length = max(state.level - floor(max(now - state.ends, 0) / charge.forgiven), 0), charge.lasting
      for _ = 1, level do
        length = min(2 * length, charge.longest)
      end
      state.level = length < charge.longest and level + 1 or level
      state.since, state.ends, state.strikes, live = now, now + length, {}, {}
    end
    state.kept = max(#live > 0 and live[#live] + charge.within or 0, state.ends + state.level * charge.forgiven)
  end

  local function take(state, charge)
    if charge.onset ~= 2 then
      return strike(state, charge, charge.cost)
    end
    if now + charge.lasting > state.ends then
      state.level = max(state.level - floor(max(now - state.ends, 0) / charge.forgiven), 0)
      state.since, state.ends = now, now + charge.lasting
    end
    local newest = state.strikes[#state.strikes]
    state.kept, state.changed = max(newest and newest + charge.within or 0, state.ends + state.level * charge.forgiven), true
  end

  -- A banned caller has knocked.
  local function knock(state, charge)
    if charge.onset == 1 then
      local newest = state.strikes[#state.strikes]
      state.since, state.ends, state.changed = now, state.ends - state.since + now, true
      state.kept = max(newest and newest + charge.within or 0, state.ends + state.level * charge.forgiven)
    end
  end

  local function debit(state, charge)
    judge(state, charge)
    if charge.passes then
      take(state, charge)
    else
      knock(state, charge)
    end
  end

  -- No strike is taken back.
  local function give_back() end

  local function expiry(state)
    state.expires = state.kept
  end

  local function form(state)
    local parts = { pack('<BBddd', 253, state.level, state.since, state.ends, state.kept) }
    for i, at in ipairs(state.strikes) do
      parts[i + 1] = pack('<d', at)
    end
    state.text = table.concat(parts)
  end

  return {
    parse = parse, fresh = fresh, read = read, advance = advance, judge = judge, take = take, debit = debit,
    give_back = give_back, strike = strike, knock = knock, expiry = expiry, form = form,
  }
end
