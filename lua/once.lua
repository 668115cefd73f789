-- An id: the first admission of a request is remembered for the id's life. Until then as many requests with the id as `replays` says
-- pass without a charge, and the next one is charged like a new one. A charge comes back only if no replay has passed on it.
--
--   state   tag B (247), replays so far B, since d, ends d; with 128 more replays, the second charge of a microsecond; with 255, a
--           charge that came back
--   charge  cost d, life d, replays B, beside I4
--
-- An id stands beside the charges whose bits are set in `beside`: those of its policy and mode. The first charge is
-- bit 1. Ids stand behind all other charges.
local function once()
  local function parse(charge, run, pos)
    charge.cost, charge.life, charge.replays, charge.beside, pos = unpack('<ddBI4', run, pos)
    return pos
  end

  local function fresh(state)
    state.used, state.since, state.ends = 0, 0, 0
  end

  local function read(state, text)
    local tag
    if #text == 18 then
      tag, state.used, state.since, state.ends = unpack('<BBdd', text)
    end
    state.is_known = tag == 247 and is_whole(state.since) and is_whole(state.ends) and state.since < state.ends
  end

  -- A clock that stepped back to before the first admission begins the id's life anew.
  local function advance(state)
    if state.ends > 0 and now >= state.ends then
      state.used, state.since, state.ends, state.changed = 0, 0, 0, true
    elseif now < state.since then
      state.since, state.ends, state.changed = now, state.ends - state.since + now, true
    end
  end

  local function judge(_, charge)
    charge.passes = true
  end

  -- Finds out whether a request with the id is a replay, which costs nothing.
  local function recall(state, charge)
    charge.is_replay = charge.cost > 0 and state.ends > 0 and state.used % 128 < charge.replays
  end

  local function replay(state)
    state.used, state.changed = state.used + 1, true
  end

  -- Remembers an admission. If another one of the same microsecond is remembered, the receipts of the two are alike, and neither comes
  -- back.
  local function take(state, charge)
    local is_again = state.ends > 0 and state.since == now and state.used ~= 255
    state.used, state.since, state.ends, state.changed = is_again and 128 or 0, now, now + charge.life, true
  end

  -- No id is charged after the fact.
  local function debit() end

  -- Says whether the charge of `at` comes back. From now on no replay passes on it.
  local function give_back(state, _, at)
    local is_unused = state.used == 0 or state.used == 255
    if state.ends == 0 or state.since ~= at or not is_unused then
      return false
    end
    state.used, state.changed = 255, true
    return true
  end

  local function expiry(state)
    state.expires = state.ends
  end

  local function form(state)
    state.text = state.ends > 0 and pack('<BBdd', 247, state.used, state.since, state.ends) or ''
  end

  -- The part of the rule that concerns the charges beside ids. `keys` has the numbers of a request's keys, `states` is by number of key, and
  -- `advance` brings one of them to now.
  local function beside(keys, states, advance)
    local ENFORCE, SHADOW = 0, 1

    -- Says whether an id stands beside charge number c.
    local function has(id, c)
      return id.beside % 2 ^ c >= 2 ^ (c - 1)
    end

    -- Asks the ids of a request. The budgets beside one whose admission is replayed are free.
    local function ask(charges)
      local width = #charges
      for c = 1, width do
        charges[c].is_free, charges[c].is_denied = false, false
      end
      for n = width - charges.ids + 1, width do
        local id = charges[n]
        local state = advance(keys[n], id, true)
        id.rule.recall(state, id)
        -- By itself an id has no budget to spare.
        id.is_replay = id.is_replay and width > 1
        for c = 1, id.is_replay and width - charges.ids or 0 do
          local charge = charges[c]
          if has(id, c) and not charge.guards and not charge.rule.release then
            charge.is_free = true
          end
        end
      end
    end

    -- Remembers the ids of a request, or counts its replays, if it passes; on trial, if the charges beside the id do.
    local function count(charges, open)
      local width = #charges
      for n = width - charges.ids + 1, width do
        local id, passes = charges[n], open
        if id.mode ~= ENFORCE then
          passes = id.mode == SHADOW
          for c = 1, width - charges.ids do
            if has(id, c) and (charges[c].is_denied or charges[c].is_closed) then
              passes = false
            end
          end
        end
        if not passes or id.cost == 0 then
          -- A question, or a denial.
        elseif id.is_replay then
          id.rule.replay(states[keys[n]])
        else
          id.rule.take(states[keys[n]], id)
        end
      end
    end

    return ask, count
  end

  return {
    parse = parse, fresh = fresh, read = read, advance = advance, judge = judge, recall = recall,
    replay = replay, take = take, debit = debit, give_back = give_back, expiry = expiry, form = form, beside = beside,
  }
end
