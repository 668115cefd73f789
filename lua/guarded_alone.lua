-- A request for one GCRA budget without a rest, and for the ban that guards it, once or as often as equal ones ask: without tables
-- and functions, as in alone.lua. Strikes, and bans that a knock begins anew, are left to the next files like all other cases,
-- before anything is written.
if not is_short and run and #run == 96 and #KEYS == 2 and #ARGV == 1 then
  local times, kind, us, latest, tag, denominator, _, _, guard, cost, _, onset, _, _, _, _, guards, numbers =
    struct.unpack('<BI4ddBdddI2dBBddddI4I2', run)
  -- To decide (0) two charges (2): GCRA (1), enforced (0), and then a ban (8), enforced (0). More times would be two bytes of the
  -- reply.
  if kind == 0x00010200 and guard == 8 and cost == 0 and onset ~= 2 and numbers == 0x0201 and denominator == 1 and us > 0
    and times < 128 then
    local budget, ban = redis.pcall('GET', key), redis.pcall('GET', KEYS[2])
    local of, at, ends, usual = tag, 0, 0, true
    -- A value of another type has neither of these lengths. A ban is this short if it remembers no strike.
    if budget then
      of = nil
      if #budget == 9 then
        of, at = struct.unpack('<Bd', budget)
      end
    end
    if ban then
      local head, level, since, kept
      if #ban == 26 then
        head, level, since, ends, kept = struct.unpack('<BBddd', ban)
      end
      usual = head == 253 and level < 64 and since >= 0 and since <= now and since <= ends and ends < 2 ^ 53 and kept >= 0
        and kept < 2 ^ 53 and since % 1 == 0 and ends % 1 == 0 and kept % 1 == 0
    end
    latest = latest + now
    -- States of these quotas, by a clock that has not stepped back.
    if usual and of == tag and at % 1 == 0 and at >= 0 and at <= latest then
      local to, admitted = (at < now and now or at) + times * us, nil
      if now < ends then
        admitted = onset ~= 1 and '\0'
      elseif to <= latest then
        local cell = tag < 138 and 1024 or 2 ^ (tag - 128)
        local from = to - to % cell
        if budget and at >= from then
          redis.call('SETRANGE', key, '1', struct.pack('<d', to))
        else
          redis.call('SET', key, struct.pack('<Bd', tag, to), 'PXAT', ('%d'):format((from + cell) / 1000 + 1))
        end
        admitted = string.char(times)
      elseif times == 1 then
        admitted = guards % 2 == 0 and '\0'
      end
      if admitted then
        -- The general form: each of the two states is a short text, or `false`.
        return seconds .. ' ' .. micros .. ' ' .. admitted .. '\146' .. (budget and '\169' or '\194') .. (budget or '')
          .. (ban and '\186' or '\194') .. (ban or '')
      end
    end
  end
end
