-- A lone request for as much as there is, or many equal ones: one key, GCRA, enforced, and no rests. It uses
-- no tables and functions. All other cases are left to the next files,
-- before anything is written.
local run, key, state = ARGV[1], KEYS[1], nil
if run and #run == 63 and #KEYS == 1 and #ARGV == 1 then
  local times, kind, us, full, tag, denominator, _, _, most, least, number = struct.unpack('<BI4ddBdddddB', run)
  -- To grant (7) of one charge (1): GCRA (1), enforced (0). More times would be two bytes of the reply.
  if kind == 0x00010107 and number == 1 and denominator == 1 and us > 0 and most > 0 and times < 128 then
    local of, at = tag, 0
    state = redis.pcall('GET', key)
    if state then
      of = nil
      if #state == 9 then
        of, at = struct.unpack('<Bd', state)
      end
    end
    -- Also a state that another class or tier has left.
    if (of == tag or of and of > 127 and of < 177) and at % 1 == 0 and at >= 0 and at <= now + 8 * full then
      local from, units = at < now and now or at, 0
      if from < now + full then
        local left = now + full - from
        units = (left - left % us) / us
      end
      -- Each is granted the most, then one the remainder. A request whose least is 0 always passes.
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
      if units > 0 then
        local to = from + units * us
        local cell = tag < 138 and 1024 or 2 ^ (tag - 128)
        local begin = to - to % cell
        if state and of == tag and at >= begin then
          redis.call('SETRANGE', key, '1', struct.pack('<d', to))
        else
          redis.call('SET', key, struct.pack('<Bd', tag, to), 'PXAT', ('%d'):format((begin + cell) / 1000 + 1))
        end
      end
      return seconds .. ' ' .. micros .. ' ' .. string.char(admitted) .. '\145' .. (state and '\169' .. state or '\194')
    end
  end
end
