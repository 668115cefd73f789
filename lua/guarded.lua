-- Requests for a GCRA budget, and for the ban that guards it: of many callers, each named once, or many of one caller. It does the
-- work of main.lua at a quarter of the cost. All other cases fall through to main.lua before anything is written: a denial that is a
-- strike, a ban that a knock begins anew, and states that another quota or clock has left.
if run and #run > 95 and run:byte(47) == 8 then
  local usual, place, total, missing, absent, values, ends = true, 0, 0, {}, 0, {}, {}

  -- Says whether the strikes behind the head of a ban are in order, and were counted by a clock that has not stepped back.
  local function are_strikes(ban)
    local length, before = #ban, 0
    if length > 538 or length % 8 ~= 2 then
      return false
    end
    for from = 27, length, 8 do
      local at = unpack('<d', ban, from)
      if not (at >= before and at <= now and at % 1 == 0) then
        return false
      end
      before = at
    end
    return true
  end

  for r = 1, #ARGV do
    local run = ARGV[r]
    if #run < 96 or #run > 4096 then
      usual = false
      break
    end
    local times, kind, us, latest, tag, denominator, more, latest_rest, guard, cost, _, onset, _, _, _, _, guards =
      unpack('<BI4ddBdddI2dBBddddI4', run)
    local cell, mark, numbers = cell_of(tag), denominator % MARKS, { run:byte(95, -1) }
    latest = latest + now
    -- To decide (0) two charges (2): GCRA (1), enforced (0), and then a ban (8), enforced (0).
    usual = kind == 0x00010200 and guard == 8 and cost == 0 and onset ~= 2 and us + more > 0 and #numbers % 2 == 0
    for n = 1, usual and #numbers or 0, 2 do
      local i = place + 1
      place = place + 2
      local budget, ban, length, of, at, rest, left_by = found[i], found[place], 9, tag, 0, 0, mark
      local till = 0
      if budget then
        of, length = nil, #budget
        if length == 9 then
          of, at = unpack('<Bd', budget)
        elseif length == 16 then
          of, at, rest, left_by = unpack('<BdI4I3', budget)
        end
      else
        absent = absent + 1
        missing[absent] = KEYS[i]
      end
      if ban then
        local head, level, since, kept
        if #ban > 25 then
          head, level, since, till, kept = unpack('<BBddd', ban)
        end
        usual = head == 253 and level < 64 and since >= 0 and since <= now and since <= till and till < 2 ^ 53 and kept >= 0
          and kept < 2 ^ 53 and since % 1 == 0 and till % 1 == 0 and kept % 1 == 0 and (now >= till or onset ~= 1)
          and (#ban == 26 or are_strikes(ban))
      else
        absent = absent + 1
        missing[absent] = KEYS[place]
      end
      usual = usual and numbers[n] == i and numbers[n + 1] == place
        and of == tag and left_by == mark and at <= latest and at >= 0 and at % 1 == 0 and rest < denominator
      if not usual then
        break
      end
      if now >= till then
        local admitted, to, to_rest = 0, nil, nil
        if at + us <= latest then
          admitted, to, to_rest = admit(at, rest, us, more, denominator, latest, latest_rest, times)
        end
        if admitted < times and guards % 2 == 1 then
          -- A strike.
          usual = false
          break
        end
        if admitted > 0 then
          total = total + admitted
          local value
          if length == 9 and to_rest == 0 then
            value = pack('<d', to)
          else
            value = pack('<dI4I3', to, to_rest, mark)
            at, to = length == 16 and at + 1 or 0, to + 1
          end
          if not budget or at - at % cell ~= to - to % cell then
            value, ends[i] = pack('B', tag) .. value, ('%d'):format((to - to % cell + cell) / 1000 + 1)
          end
          values[i] = value
        end
      end
    end
    if not usual then
      break
    end
  end

  if usual and place == #KEYS and not (absent > 0 and redis.call('EXISTS', spread(missing)) > 0) then
    for i = 1, total > 0 and place or 0, 2 do
      if ends[i] then
        redis.call('SET', KEYS[i], values[i], 'PXAT', ends[i])
      elseif values[i] then
        -- In place, as the expiry stays.
        redis.call('SETRANGE', KEYS[i], '1', values[i])
      end
    end
    return seconds .. ' ' .. micros .. ' ' .. cmsgpack.pack(total, found)
  end
end
