-- Calls of enforced GCRA charges only, several to a request: an own budget and a shared one. It does the work of main.lua at
-- half of the cost, because it has no table for each state. All other cases fall through to main.lua before anything is
-- written.

-- Writes a state that was moved from `at` to `to`: in place if its expiry stays.
local function put(key, state, tag, at, to, to_rest, mark)
  local length, cell, value = state and #state or 9, cell_of(tag), nil
  if length == 9 and to_rest == 0 then
    value = pack('<d', to)
  else
    value = pack('<dI4I3', to, to_rest, mark)
    at, to = length == 16 and at + 1 or 0, to + 1
  end
  if state and at - at % cell == to - to % cell then
    return redis.call('SETRANGE', key, '1', value)
  end
  redis.call('SET', key, pack('B', tag) .. value, 'PXAT', ('%d'):format((to - to % cell + cell) / 1000 + 1))
end

do
  -- By number of key: the state now, its quota, and the state as it was if that has changed. A missing state has no tag yet.
  -- The tables are made at their full length, since growing them is expensive.
  local at, rests, tags, from, missing = { spread(found) }, { spread(found) }, { spread(found) }, {}, nil
  -- By number of key, if it has a rest: the mark of that.
  local marks = {}
  local usual, admitted = #ARGV > 0, 0

  for i = 1, usual and #KEYS or 0 do
    local state = found[i]
    if not state then
      at[i], rests[i], missing = 0, 0, missing or {}
      missing[#missing + 1] = KEYS[i]
    elseif #state == 9 then
      tags[i], at[i] = unpack('<Bd', state)
      rests[i] = 0
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
          local stands, rest, latest, tag = at[i], rests[i], charge.latest, charge.tag
          if (tags[i] or tag) ~= tag or stands > latest or stands < 0 or stands % 1 ~= 0 or rest >= charge.denominator
            or (marks[i] or charge.mark) ~= charge.mark then
            usual = false
          -- Most denials show in whole microseconds already, and a function call is expensive.
          elseif stands + charge.us > latest then
            open = 0
          elseif open == 1 then
            open, charge.to, charge.to_rest = admit(stands, rest, charge.us, charge.more, charge.denominator, latest,
              charge.latest_rest, 1)
          end
        end
        if open == 1 then
          admitted = admitted + 1
          for c = 1, width do
            local charge, i = charges[c], numbers[request + c]
            if not from[i] then
              from[i], tags[i] = at[i], charge.tag
            end
            marks[i] = charge.mark
            at[i], rests[i] = charge.to, charge.to_rest
          end
        end
      end
    end
  end

  if usual and not (missing and #KEYS > 1 and redis.call('EXISTS', spread(missing)) > 0) then
    for i = 1, #KEYS do
      if from[i] then
        put(KEYS[i], found[i], tags[i], from[i], at[i], rests[i], marks[i])
      end
    end
    return seconds .. ' ' .. micros .. ' ' .. cmsgpack.pack(admitted, found)
  end
end

