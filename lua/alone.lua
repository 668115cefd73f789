-- A request that nobody else travels with: one key, GCRA, enforced. Two thirds of what it costs are the server's own, so
-- there are no tables and no functions here, and whatever needs them is left to the next files before anything is written:
-- a key that is new, a state whose expiry has to move, more than one request.
local state
if #KEYS == 1 then
  local run = ARGV[1]
  state = redis.pcall('GET', KEYS[1])
  if #ARGV == 1 and #run == 46 and state then
    local kind, us, latest, tag, denominator, more, latest_rest = unpack('<I5ddBddd', run)
    local length, of, at, rest = #state, nil, nil, 0
    if length == 9 then
      of, at = unpack('<Bd', state)
    elseif length == 13 then
      of, at, rest = unpack('<BdI4', state)
    end
    latest = latest + now
    -- Once (1), to decide (0) one charge (1), GCRA (1), enforced (0); and a state of that very quota.
    if kind == 0x0001010001 and of == tag and us + more > 0 and at >= 0 and at <= latest and at % 1 == 0
      and rest < denominator then
      local to, to_rest = at + us, rest + more
      if at < now then
        to, to_rest = now + us, more
      end
      if to_rest >= denominator then
        to, to_rest = to + 1, to_rest - denominator
      end
      local admitted
      if to > latest or (to == latest and to_rest > latest_rest) then
        admitted = ' \0'
      else
        local cell = 2 ^ (tag - 128)
        if length == 9 and to_rest == 0 and at - at % cell == to - to % cell then
          admitted = ' \1'
          redis.call('SETRANGE', KEYS[1], '1', struct.pack('<d', to))
        elseif length == 13 and at - (at + 1) % cell == to - (to + 1) % cell then
          admitted = ' \1'
          redis.call('SETRANGE', KEYS[1], '1', struct.pack('<dI4', to, to_rest))
        end
      end
      if admitted then
        -- What cmsgpack would write, at a tenth of the cost.
        return clock[1] .. ' ' .. clock[2] .. admitted .. (length == 9 and '\145\169' or '\145\173') .. state
      end
    end
  end
end

