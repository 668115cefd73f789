-- Calls of enforced GCRA charges only, several to a request: an own budget and a shared one. It does the work of main.lua at
-- half of the cost, because it has no table for each state. All other cases fall through to main.lua before anything is
-- written.

-- Other calls are seen by their first charge, before a table is made for them.
if #ARGV > 0 and ARGV[1]:byte(2) == 0 and ARGV[1]:byte(4) == 1 then
  -- By number of key: the state now, its quota, and the state as it was if that has changed. A missing state has no tag yet.
  -- The tables are made at their full length, since growing them is expensive.
  local at, tags, from, missing = { spread(found) }, { spread(found) }, {}, nil
  -- By number of key, if it has a rest: the rest and its mark. Most quotas leave none.
  local rests, marks = {}, {}
  local usual, admitted = true, 0

  for i = 1, #KEYS do
    local state = found[i]
    if not state then
      at[i], tags[i], missing = 0, nil, missing or {}
      missing[#missing + 1] = KEYS[i]
    elseif #state == 9 then
      tags[i], at[i] = unpack('<Bd', state)
    elseif #state == 16 then
      tags[i], at[i], rests[i], marks[i] = unpack('<BdI4I3', state)
    else
      usual = false
      break
    end
  end

  for r = 1, #ARGV do
    local run = ARGV[r]
    local times, verb, width = run:byte(1, 3)
    local pos, charges = 4, {}
    usual = usual and verb == 0 and #run < 4096 and #run > 3 + width * 43
    for c = 1, usual and width or 0 do
      -- GCRA, enforced. Other charges are shorter, but the bytes behind them make up for it.
      local kind, us, full, tag, denominator, more, full_rest, after = unpack('<I2ddBddd', run, pos)
      charges[c] = {
        us = us, more = more, denominator = denominator, tag = tag, latest = now + full, latest_rest = full_rest,
        mark = denominator % MARKS, to = 0, to_rest = 0,
      }
      pos, usual = after, usual and kind == 1 and us + more > 0
    end
    if not usual or width == 0 then
      usual = false
      break
    end
    local numbers = { run:byte(pos, -1) }
    for request = 0, #numbers - width, width do
      for _ = 1, times do
        local open = 1
        for c = 1, width do
          local charge, i = charges[c], numbers[request + c]
          local stands, rest, latest, tag = at[i], rests[i] or 0, charge.latest, charge.tag
          if (tags[i] or tag) ~= tag or stands > latest or stands < 0 or stands % 1 ~= 0 or rest >= charge.denominator
            or (marks[i] or charge.mark) ~= charge.mark then
            usual = false
          elseif open == 1 then
            -- As `admit` of shared.lua does: a call of it costs as much as all of this.
            if stands < now then
              stands, rest = now, 0
            end
            stands, rest = stands + charge.us, rest + charge.more
            if rest >= charge.denominator then
              stands, rest = stands + 1, rest - charge.denominator
            end
            if stands > latest or (stands == latest and rest > charge.latest_rest) then
              open = 0
            end
            charge.to, charge.to_rest = stands, rest
          end
        end
        if open == 1 then
          admitted = admitted + 1
          for c = 1, width do
            local charge, i = charges[c], numbers[request + c]
            if not from[i] then
              from[i], tags[i] = at[i], charge.tag
            end
            at[i] = charge.to
            if charge.to_rest > 0 or rests[i] then
              rests[i], marks[i] = charge.to_rest, charge.mark
            end
          end
        end
      end
    end
  end

  if usual and not (missing and #KEYS > 1 and redis.call('EXISTS', spread(missing)) > 0) then
    for i = 1, #KEYS do
      local before = from[i]
      if before then
        local state, tag, to, value = found[i], tags[i], at[i], nil
        local cell, length = cell_of(tag), state and #state or 9
        if length == 9 and (rests[i] or 0) == 0 then
          value = pack('<d', to)
        else
          value = pack('<dI4I3', to, rests[i], marks[i])
          before, to = length == 16 and before + 1 or 0, to + 1
        end
        -- In place if the expiry stays.
        if state and before - before % cell == to - to % cell then
          redis.call('SETRANGE', KEYS[i], '1', value)
        else
          redis.call('SET', KEYS[i], pack('B', tag) .. value, 'PXAT', ('%d'):format((to - to % cell + cell) / 1000 + 1))
        end
      end
    end
    return seconds .. ' ' .. micros .. ' ' .. cmsgpack.pack(admitted, found)
  end
end

