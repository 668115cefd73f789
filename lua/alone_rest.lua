-- A lone request under a quota with a rest, in the words of any other call. This path denies, or overwrites a state in place. A
-- new key and an expiry that moves are left to the next files, too.
if not is_short and run and #run == 46 and #KEYS == 1 and #ARGV == 1 then
  local kind, us, latest, tag, denominator, more, latest_rest = struct.unpack('<I5ddBddd', run)
  local of, at, rest, mark = nil, nil, 0, nil
  state = redis.pcall('GET', key)
  if state and #state == 9 then
    of, at = struct.unpack('<Bd', state)
  elseif state and #state == 16 then
    of, at, rest, mark = struct.unpack('<BdI4I3', state)
  end
  latest = latest + now
  -- Once (1), to decide (0) one charge (1), GCRA (1), enforced (0); and a state of that very quota.
  if kind == 0x0001010001 and of == tag and us + more > 0 and at <= latest and at >= 0 and at % 1 == 0
    and rest < denominator and (mark == nil or mark == denominator % 65521) then
    local to, to_rest = at + us, rest + more
    if at < now then
      to, to_rest = now + us, more
    end
    if to_rest >= denominator then
      to, to_rest = to + 1, to_rest - denominator
    end
    local cell, reply = tag < 138 and 1024 or 2 ^ (tag - 128), nil
    if to > latest or (to == latest and to_rest > latest_rest) then
      reply = '-'
    elseif #state == 9 and to_rest == 0 and at >= to - to % cell then
      reply = '+'
      redis.call('SETRANGE', key, '1', struct.pack('<d', to))
    elseif mark and at >= to - (to + 1) % cell then
      reply = '+'
      redis.call('SETRANGE', key, '1', struct.pack('<dI4', to, to_rest))
    end
    if reply then
      return seconds .. reply .. micros .. state
    end
  end
end
