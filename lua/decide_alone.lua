-- A lone enforced GCRA charge, for a program that has no rule of its own: decided, and told in full. Most of its cost is the
-- server's own, so there are no tables and no functions here. The next files handle all other cases: a state with credits, with a
-- debt, of a quota with other rests, or a foreign one. Before that nothing is written.
local run, key, state, is_short = ARGV[1], KEYS[1], nil, false
if #ARGV == 1 and #KEYS == 1 and #run == 59 then
  local kind, us, full, tag, denominator, more, full_rest, unit, unit_rest = struct.unpack('<I2ddBddddd', run)
  local of, at, rest, mark = tag, 0, 0, nil
  state = redis.pcall('GET', key)
  if state then
    of = nil
    if #state == 9 then
      of, at = struct.unpack('<Bd', state)
    elseif #state == 16 then
      of, at, rest, mark = struct.unpack('<BdI4I3', state)
    end
  end
  -- A state of eight drains may be a debt; one with a rest is known only by its quota. Another class or tier may have left the tag.
  if kind == 1 and us + more > 0 and at % 1 == 0 and at >= 0
    and (not mark and (of == tag or of and of > 127 and of < 177) and at <= now + 8 * full
      or mark == denominator % 65521 and of == tag and at <= now + full and rest < denominator) then
    local latest, was = now + full, at
    if at < now then
      at, rest = now, 0
    end
    local to, to_rest = at + us, rest + more
    if to_rest >= denominator then
      to, to_rest = to + 1, to_rest - denominator
    end
    local is_denied = to > latest or (to == latest and to_rest > full_rest)
    if not is_denied then
      -- A state with a rest ends a microsecond later. Expiries are whole milliseconds, so narrower cells would not differ.
      local cell, later = tag < 138 and 1024 or 2 ^ (tag - 128), mark and 1 or 0
      if state and of == tag and (mark or to_rest == 0) and was + later >= to + later - (to + later) % cell then
        redis.call('SETRANGE', key, '1', mark and struct.pack('<dI4', to, to_rest) or struct.pack('<d', to))
      else
        local value, ends = struct.pack('<Bd', tag, to), to
        if to_rest > 0 then
          value, ends = struct.pack('<BdI4I3', tag, to, to_rest, denominator % 65521), to + 1
        end
        redis.call('SET', key, value, 'PXAT', ('%d'):format((ends - ends % cell + cell) / 1000 + 1))
      end
      at, rest = to, to_rest
    end
    -- The room that is left, the units that fit into it, and the time until all of it is.
    local room, remaining, reset = latest - at, 0, at - now
    if denominator == 1 then
      if room >= unit then
        remaining = (room - room % unit) / unit
      end
    else
      local room_rest = full_rest - rest
      if room_rest < 0 then
        room, room_rest = room - 1, room_rest + denominator
      end
      if room >= 0 then
        -- No less than the quotient, and less than one more.
        remaining = math.floor((room + room_rest / denominator) / (unit + unit_rest / denominator) * (1 + 2 ^ -50))
        local rests = remaining * unit_rest
        local over = rests % denominator
        local drain = remaining * unit + (rests - over) / denominator
        if drain > room or (drain == room and over > room_rest) then
          remaining = remaining - 1
        end
      end
      if rest > 0 then
        reset = reset + 1
      end
    end
    if not is_denied then
      return seconds .. ' ' .. micros .. (' 1 1 0 1 %d %d 0'):format(remaining, reset)
    end
    local wait, told = -1, -1
    if us < full or (us == full and more <= full_rest) then
      wait = to - latest
      if to_rest > full_rest then
        wait = wait + 1
      end
      told = wait + 999999
      told = (told - told % 1000000) / 1000000
    end
    -- Each number that is written costs a thirtieth of a decision, and mostly nothing is left.
    if remaining == 0 then
      return seconds .. ' ' .. micros .. (' 0 1 %d 0 0 %d %d'):format(told, reset, wait)
    end
    return seconds .. ' ' .. micros .. (' 0 1 %d 0 %d %d %d'):format(told, remaining, reset, wait)
  end
end

-- Other calls are checked before anything is read.
local fault
if #KEYS ~= #ARGV or #KEYS == 0 or #KEYS > 32 then
  fault = 'it takes 1 to 32 keys, and a charge for each'
end
local seen, lengths = {}, { 59, 34, 26, 34, 26, [8] = 48, [9] = 42, [10] = 74, [11] = 100 }
for c = 1, fault and 0 or #KEYS do
  local name, charge = KEYS[c], ARGV[c]
  local algorithm, mode = charge:byte(1, 2)
  if seen[name] then
    fault = 'key ' .. c .. ' stands twice'
  elseif not lengths[algorithm or 0] then
    fault = 'algorithm ' .. (algorithm or 0) .. ' is not decided in it'
  elseif #charge ~= lengths[algorithm] or mode > 2 then
    fault = 'charge ' .. c .. ' is not one of algorithm ' .. algorithm
  end
  seen[name] = true
end
if fault then
  return redis.error_reply('ERR decide form: ' .. fault)
end
