-- A request for one GCRA budget without a rest, and with an id: without tables and functions, as in alone.lua. An id whose life is over,
-- one of this microsecond and one of a clock that stepped back are left to the next files like all other cases, before anything is written.
if run and #run == 71 and #KEYS == 2 and #ARGV == 1 then
  local kind, us, full, tag, denominator, _, _, rule, cost, life, replays, beside, numbers =
    struct.unpack('<I5ddBdddI2ddBI4I2', run)
  -- Once (1), to decide (0) two charges (2): GCRA (1), enforced (0), and then an id (12), enforced (0), beside it.
  if kind == 0x0001020001 and rule == 12 and cost > 0 and beside == 1 and numbers == 0x0201 and denominator == 1 and us > 0 then
    local budget, id = redis.pcall('GET', key), redis.pcall('GET', KEYS[2])
    local of, at, used, usual = tag, 0, replays, true
    -- A value of another type has neither of these lengths.
    if budget then
      of = nil
      if #budget == 9 then
        of, at = struct.unpack('<Bd', budget)
      end
    end
    if id then
      local head, since, ends
      if #id == 18 then
        head, used, since, ends = struct.unpack('<BBdd', id)
      end
      usual = head == 247 and since >= 0 and since < now and now < ends and ends < 2 ^ 53 and since % 1 == 0 and ends % 1 == 0
    end
    -- Also a budget that another class or tier has left, as in alone.lua.
    if usual and (of == tag or of and of > 127 and of < 177) and at % 1 == 0 and at >= 0 and at <= now + 8 * full then
      local to, admitted = (at < now and now or at) + us, '\1'
      if used % 128 < replays then
        redis.call('SETRANGE', KEYS[2], '1', string.char(used + 1))
      elseif to > now + full then
        admitted = '\0'
      else
        local cell = tag < 138 and 1024 or 2 ^ (tag - 128)
        local begin = to - to % cell
        if budget and of == tag and at >= begin then
          redis.call('SETRANGE', key, '1', struct.pack('<d', to))
        else
          redis.call('SET', key, struct.pack('<Bd', tag, to), 'PXAT', ('%d'):format((begin + cell) / 1000 + 1))
        end
        redis.call('SET', KEYS[2], struct.pack('<BBdd', 247, 0, now, now + life), 'PXAT', ('%d'):format((now + life) / 1000 + 1))
      end
      -- The general form: each of the two states is a short text, or `false`.
      return seconds .. ' ' .. micros .. ' ' .. admitted .. '\146' .. (budget and '\169' or '\194') .. (budget or '')
        .. (id and '\178' or '\194') .. (id or '')
    end
  end
end
