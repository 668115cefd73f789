-- Requests for a GCRA budget without a rest, and with an id each: of many callers, or of few. It does the work of main.lua without a
-- table for each state. All other cases fall through to main.lua before anything is written: an id whose life is over, one of this
-- microsecond, and states that another clock has left.
if run and #run > 70 and run:byte(47) == 12 then
  -- By number of key: the tag; the point in time at which the budget is full again, or the replays of the id; and the same as it was
  -- found, or the text of an id that is new. The tables are made at their full length, since growing them is expensive.
  local tags, now_there, was_there = { spread(found) }, { spread(found) }, { spread(found) }
  local usual, total, missing, absent, ends = true, 0, {}, 0, {}
  for i = 1, #KEYS do
    local state = found[i]
    if not state then
      tags[i], now_there[i], was_there[i], absent = 0, 0, 0, absent + 1
      missing[absent] = KEYS[i]
    elseif #state == 9 then
      local tag, at = unpack('<Bd', state)
      tags[i], now_there[i], was_there[i] = tag, at, at
      usual = usual and tag > 127 and tag < 177 and at % 1 == 0 and at >= 0
    elseif #state == 18 then
      local tag, used, since, till = unpack('<BBdd', state)
      tags[i], now_there[i], was_there[i] = tag, used, used
      usual = usual and tag == 247 and since >= 0 and since < now and now < till and till < 2 ^ 53 and since % 1 == 0 and till % 1 == 0
    else
      usual = false
    end
  end
  for r = 1, #ARGV do
    local run = ARGV[r]
    if not usual or #run < 71 or #run > 4096 then
      usual = false
      break
    end
    local times, kind, us, full, tag, denominator, _, _, rule, cost, life, replays, beside = unpack('<BI4ddBdddI2ddBI4', run)
    local latest, furthest, numbers, remembered = now + full, now + 8 * full, { run:byte(70, -1) }, nil
    -- To decide (0) two charges (2): GCRA (1), enforced (0), and then an id (12), enforced (0), beside it.
    usual = kind == 0x00010200 and rule == 12 and cost > 0 and beside == 1 and denominator == 1 and us > 0 and #numbers % 2 == 0
    for n = 1, usual and #numbers or 0, 2 do
      local i, j = numbers[n], numbers[n + 1]
      local at, of = now_there[i], tags[j]
      local used = of == 247 and now_there[j] or replays
      if tags[i] == 247 or at > furthest or (of ~= 0 and of ~= 247) or i == j then
        usual = false
        break
      end
      for _ = 1, times do
        if used % 128 < replays then
          used = used + 1
        else
          local to = (at < now and now or at) + us
          if to > latest then
            break
          end
          if not remembered then
            remembered = pack('<BBdd', 247, 0, now, now + life)
            ends[remembered] = ('%d'):format((now + life) / 1000 + 1)
          end
          if tags[i] ~= tag then
            -- So that it is written whole.
            tags[i], was_there[i] = tag, 0
          end
          -- A second charge in this microsecond: as in once.lua.
          at, used, of, was_there[j] = to, ends[was_there[j]] and 128 or 0, 247, remembered
        end
        total = total + 1
      end
      now_there[i] = at
      if of == 247 then
        tags[j], now_there[j] = 247, used
      end
    end
    if not usual then
      break
    end
  end
  if usual and not (absent > 0 and redis.call('EXISTS', spread(missing)) > 0) then
    for i = 1, total > 0 and #KEYS or 0 do
      local is, was, tag = now_there[i], was_there[i], tags[i]
      if is == was then
        -- It stays as it was found.
      elseif tag ~= 247 then
        local cell = cell_of(tag)
        if was - was % cell == is - is % cell then
          -- In place, as the expiry stays.
          redis.call('SETRANGE', KEYS[i], '1', pack('<d', is))
        else
          redis.call('SET', KEYS[i], pack('<Bd', tag, is), 'PXAT', ('%d'):format((is - is % cell + cell) / 1000 + 1))
        end
      elseif ends[was] then
        redis.call('SET', KEYS[i], is == 0 and was or '\247' .. string.char(is) .. was:sub(3), 'PXAT', ends[was])
      else
        redis.call('SETRANGE', KEYS[i], '1', string.char(is))
      end
    end
    return seconds .. ' ' .. micros .. ' ' .. cmsgpack.pack(total, found)
  end
end
