-- Requests for as much as there is: each key once, GCRA, enforced, and no rests. It does the work of main.lua without a table for each
-- state. All other cases fall through to main.lua before anything is written.
if run and #run > 62 and run:byte(2) == 7 then
  local usual, place, total, values, ends, missing = true, 0, 0, {}, {}, nil
  for r = 1, #ARGV do
    local run = ARGV[r]
    if #run < 63 or #run > 4096 then
      usual = false
      break
    end
    local times, kind, us, full, tag, denominator, _, _, most, least = unpack('<BI4ddBddddd', run)
    local cell, latest, furthest, numbers = cell_of(tag), now + full, now + 8 * full, { run:byte(63, -1) }
    -- To grant (7) of one charge (1): GCRA (1), enforced (0).
    usual = kind == 0x00010107 and denominator == 1 and us > 0 and most > 0
    for n = 1, usual and #numbers or 0 do
      local i = place + 1
      place = i
      local state, of, at = found[i], tag, 0
      if state then
        of = nil
        if #state == 9 then
          of, at = unpack('<Bd', state)
        end
      else
        missing = missing or {}
        missing[#missing + 1] = KEYS[i]
      end
      -- Also a state that another class or tier has left, as in alone.lua.
      usual = numbers[n] == i and (of == tag or of and of > 127 and of < 177) and at <= furthest and at >= 0 and at % 1 == 0
      if not usual then
        break
      end
      local from, units = at < now and now or at, 0
      if from < latest then
        local left = latest - from
        units = (left - left % us) / us
      end
      -- As in grant_alone.lua.
      local remainder = units % most
      local admitted = (units - remainder) / most
      if admitted >= times then
        admitted, units = times, times * most
      elseif least == 0 then
        admitted = times
      elseif remainder >= least then
        admitted = admitted + 1
      else
        units = units - remainder
      end
      total = total + admitted
      if units > 0 then
        local to = from + units * us
        values[i] = pack('<d', to)
        if not state or of ~= tag or at - at % cell ~= to - to % cell then
          values[i], ends[i] = pack('<Bd', tag, to), ('%d'):format((to - to % cell + cell) / 1000 + 1)
        end
      end
    end
    if not usual then
      break
    end
  end
  if usual and place == #KEYS and not (missing and #KEYS > 1 and redis.call('EXISTS', spread(missing)) > 0) then
    for i = 1, place do
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
