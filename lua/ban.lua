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
  local TAG, HEAD, STRIKE, MOST, HIGHEST = 253, 26, 8, 64, 63
  local EXTENDED, IMPOSED = 1, 2

  local function quota(run, pos)
    local cost, strikes, onset, within, lasting, longest, forgiven, guards, after = unpack('<dBBddddI4', run, pos)
    return {
      strikes = strikes, onset = onset, within = within, lasting = lasting, longest = longest, forgiven = forgiven,
      guards = guards,
    }, cost, after
  end

  local function fresh()
    return { level = 0, since = 0, ends = 0, kept = 0, strikes = {} }
  end

  local function read(text)
    local count = (#text - HEAD) / STRIKE
    if count < 0 or count > MOST or count % 1 ~= 0 then
      return false
    end
    local tag, level, since, ends, kept = unpack('<BBddd', text)
    if tag ~= TAG or level > HIGHEST or not (is_whole(since) and is_whole(ends) and is_whole(kept)) or since > ends then
      return false
    end
    local strikes, before = {}, 0
    for i = 1, count do
      local at = unpack('<d', text, HEAD + 1 + (i - 1) * STRIKE)
      if not is_whole(at) or at < before then
        return false
      end
      strikes[i], before = at, at
    end
    return { level = level, since = since, ends = ends, kept = kept, strikes = strikes }
  end

  -- A clock that stepped back starts the last ban anew, and strikes ahead of it count as made now.
  local function advance(state)
    if now < state.since then
      state.since, state.ends, state.changed = now, now + state.ends - state.since, true
    end
    local strikes = state.strikes
    for i = #strikes, 1, -1 do
      if strikes[i] <= now then
        break
      end
      strikes[i], state.changed = now, true
    end
  end

  local function passes(state, charge)
    return now >= state.ends or charge.quota.onset == IMPOSED
  end

  -- Remembers a change for as long as it means something.
  local function keep(state, terms)
    local newest = state.strikes[#state.strikes]
    state.kept = max(newest and newest + terms.within or 0, state.ends + state.level * terms.forgiven)
    state.changed = true
  end

  -- The doublings that no quiet spell has taken back.
  local function doublings(state, terms)
    local spells = floor(max(now - state.ends, 0) / terms.forgiven)
    return max(state.level - spells, 0)
  end

  local function begin(state, terms)
    local level, length = doublings(state, terms), terms.lasting
    for _ = 1, level do
      length = min(2 * length, terms.longest)
    end
    state.level = length < terms.longest and level + 1 or level
    state.since, state.ends, state.strikes = now, now + length, {}
  end

  local function strike(state, terms, strikes)
    local live = {}
    for _, at in ipairs(state.strikes) do
      if at + terms.within > now then
        live[#live + 1] = at
      end
    end
    for _ = 1, min(strikes, terms.strikes) do
      live[#live + 1] = now
    end
    state.strikes = live
    if #live >= terms.strikes then
      begin(state, terms)
    end
    keep(state, terms)
  end

  local function take(state, charge)
    local terms = charge.quota
    if terms.onset ~= IMPOSED then
      return strike(state, terms, charge.cost)
    end
    if now + terms.lasting > state.ends then
      state.level = doublings(state, terms)
      state.since, state.ends = now, now + terms.lasting
    end
    state.strikes = {}
    keep(state, terms)
  end

  -- A banned caller has knocked.
  local function knock(state, charge)
    if charge.quota.onset == EXTENDED then
      state.since, state.ends = now, now + state.ends - state.since
      keep(state, charge.quota)
    end
  end

  local function debit(state, charge)
    if passes(state, charge) then
      take(state, charge)
    else
      knock(state, charge)
    end
  end

  -- No strike is taken back.
  local function give_back() end

  local function write(key, state)
    local parts = { pack('<BBddd', TAG, state.level, state.since, state.ends, state.kept) }
    for i, at in ipairs(state.strikes) do
      parts[i + 1] = pack('<d', at)
    end
    set_until(key, table.concat(parts), state.kept)
  end

  return {
    quota = quota, fresh = fresh, read = read, advance = advance, passes = passes, take = take, debit = debit,
    give_back = give_back, strike = strike, knock = knock, write = write,
  }
end
