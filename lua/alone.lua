-- A lone request: one key, GCRA, enforced, and no rests. Most of its cost is the server's own, so there are no tables and no
-- functions here. The next files handle all other cases: a state with a rest, with credits, with a debt, or a foreign one. Before
-- that nothing is written.
local run, key, state = ARGV[1], KEYS[1], nil
local is_short = run and #run == 17
if is_short then
  local us, full, tag = struct.unpack('<ddB', run)
  local of, at = tag, 0
  state = redis.pcall('GET', key)
  if state then
    of = nil
    if #state == 9 then
      of, at = struct.unpack('<Bd', state)
    end
  end
  -- Also a state that another class or tier has left, whose tag differs. Each may lie ahead by the largest debt, eight full drains.
  if (of == tag or of and of > 127 and of < 177) and at % 1 == 0 and at >= 0 and at <= now + 8 * full then
    local to = (at < now and now or at) + us
    if to > now + full then
      return seconds .. '-' .. micros .. (state or '')
    end
    -- Expiries are whole milliseconds, so narrower cells would not differ.
    local cell = tag < 138 and 1024 or 2 ^ (tag - 128)
    local from = to - to % cell
    if state and of == tag and at >= from then
      redis.call('SETRANGE', key, '1', struct.pack('<d', to))
    else
      redis.call('SET', key, struct.pack('<Bd', tag, to), 'PXAT', ('%d'):format((from + cell) / 1000 + 1))
    end
    -- In any case the budget was full.
    if at < now then
      return now
    end
    return seconds .. '+' .. micros .. state
  end
end
