-- One run that charges each key once, enforced, by GCRA: many callers with a budget each, or many requests of one of them. It
-- does the work of main.lua at a third of the cost, because it has no tables and closures. All other cases fall through to
-- main.lua before anything is written.
if #ARGV == 1 and #ARGV[1] == 46 then
  local times, kind, us, latest, tag, denominator, more, latest_rest = unpack('<BI4ddBddd', ARGV[1])
  -- A state may lie ahead by the largest debt, eight full drains.
  local furthest = now + 8 * latest
  latest = latest + now
  local usual = kind == 0x10100 and us + more > 0
  local cell, total, values, ends, missing = cell_of(tag), 0, {}, nil, nil
  local mark = denominator % MARKS
  for i = 1, usual and #KEYS or 0 do
    local state, length, of, at, rest, left_by = found[i], 9, tag, 0, 0, mark
    if state then
      length = #state
      if length == 9 then
        of, at = unpack('<Bd', state)
      elseif length == 16 then
        of, at, rest, left_by = unpack('<BdI4I3', state)
      else
        of = nil
      end
    else
      missing = missing or {}
      missing[#missing + 1] = KEYS[i]
    end
    -- Another class or tier may have left the state. Then its tag differs.
    if of ~= tag and (length ~= 9 or of < 128 or of > 176) or left_by ~= mark or at > furthest or at < 0 or at % 1 ~= 0 or rest >= denominator then
      usual = false
      break
    end
    -- Most denials show in whole microseconds already, and a function call is expensive.
    if at + us <= latest then
      local admitted, to, to_rest = admit(at, rest, us, more, denominator, latest, latest_rest, times)
      if admitted > 0 then
        total = total + admitted
        if length == 9 and to_rest == 0 then
          values[i] = pack('<d', to)
        else
          values[i] = pack('<dI4I3', to, to_rest, mark)
          at, to = length == 16 and at + 1 or 0, to + 1
        end
        if not state or of ~= tag or at - at % cell ~= to - to % cell then
          ends = ends or {}
          ends[i] = ('%d'):format((to - to % cell + cell) / 1000 + 1)
        end
      end
    end
  end
  if usual and not (missing and #KEYS > 1 and redis.call('EXISTS', spread(missing)) > 0) then
    for i = 1, total > 0 and #KEYS or 0 do
      if ends and ends[i] then
        redis.call('SET', KEYS[i], pack('B', tag) .. values[i], 'PXAT', ends[i])
      elseif values[i] then
        redis.call('SETRANGE', KEYS[i], '1', values[i])
      end
    end
    return seconds .. ' ' .. micros .. ' ' .. cmsgpack.pack(total, found)
  end
end

