-- The usual call: one run that charges each key once, enforced, by GCRA, and no state out of the ordinary. It does what
-- main.lua would do, at a third of the cost, for want of tables and closures. Whatever else there is falls through to
-- main.lua, before anything is written.
if #ARGV == 1 and #ARGV[1] == 46 then
  local verb, width, times, algorithm, mode, cost, burst, us, rest, denominator, tag = unpack('<BBBBBdddddB', ARGV[1])
  local more, latest_rest, cell = cost * rest, burst * rest, math.ldexp(1, tag - 128)
  local latest = now + burst * us + (latest_rest - latest_rest % denominator) / denominator
  us, more, latest_rest = cost * us + (more - more % denominator) / denominator, more % denominator,
    latest_rest % denominator

  local usual = verb == 0 and width == 1 and algorithm == 1 and mode == 0 and cost > 0
  local total, values, ends, missing = 0, {}, nil, nil
  for i = 1, usual and #KEYS or 0 do
    local state, length, of, at, from_rest = found[i], 9, tag, 0, 0
    if state then
      length = #state
      if length == 9 then
        of, at = unpack('<Bd', state)
      elseif length == 13 then
        of, at, from_rest = unpack('<BdI4', state)
      else
        of = nil
      end
    else
      missing = missing or {}
      missing[#missing + 1] = KEYS[i]
    end
    if of ~= tag or at > latest or at < 0 or at % 1 ~= 0 or from_rest >= denominator then
      usual = false
      break
    end
    -- Most denials show in whole microseconds already, and a call of a function is dear.
    local admitted, to, to_rest
    if at + us <= latest then
      admitted, to, to_rest = admit(at, from_rest, us, more, denominator, latest, latest_rest, times)
    end
    if admitted and admitted > 0 then
      total = total + admitted
      if length == 9 and to_rest == 0 then
        values[i] = pack('<d', to)
      else
        values[i] = pack('<dI4', to, to_rest)
        at, to = length == 13 and at + 1 or 0, to + 1
      end
      if not state or at - at % cell ~= to - to % cell then
        ends = ends or {}
        ends[i] = ('%d'):format((to - to % cell + cell) / 1000 + 1)
      end
    end
  end
  if usual and not (missing and redis.call('EXISTS', spread(missing)) > 0) then
    for i = 1, #KEYS do
      if ends and ends[i] then
        redis.call('SET', KEYS[i], pack('B', tag) .. values[i], 'PXAT', ends[i])
      elseif values[i] then
        redis.call('SETRANGE', KEYS[i], '1', values[i])
      end
    end
    return cmsgpack.pack(now, total, found)
  end
end

