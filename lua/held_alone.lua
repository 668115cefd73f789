-- An acquire or a release of what is held: one key, and one enforced charge, once or as often as equal requests ask. It does the
-- work of held_apart.lua without a table. It leaves to that one, before anything is written, whatever is not usual there either,
-- and the first call of a generation, a call that moves an expiry, and the first call to a long state.
local run, key, state = ARGV[1], KEYS[1], nil
local words = run and #run > 21 and #ARGV == 2 and ARGV[2]
if words and #words == 22 and #KEYS == 1 then
  local pack, unpack = struct.pack, struct.unpack
  local caller, holder, generation, lease, after = unpack('<I2c8I6I6', run)
  local times, kind, cost, limit = unpack('<BI4dd', words)
  local now_ms = (now - now % 1000) / 1000
  local ends = now_ms - now_ms % ((lease - lease % 4) / 4) + lease
  local is_acquire = kind == 0x60100
  local length, at, tag, total, earliest, latest, who, old, new, mark = nil, 22, nil, nil, nil, nil, nil, nil, nil, nil
  local offset
  if caller == 0x400 and times * cost > 0 and (is_acquire or kind == 0x2060106) then
    at = #run == 24 and 32 * unpack('<I2', run, after) - 10 or 0
    if at > 0 then
      -- The call says where the entry stands. The value of another type has errors in these places.
      offset = ('%d'):format(at - 1)
      local entry = redis.pcall('GETRANGE', key, offset, ('%d'):format(at + 30))
      length = #entry == 32 and redis.call('STRLEN', key) or 0
      if length % 32 == 21 and length < 32790 then
        tag, total, earliest, latest = unpack('<BdI6I6', (redis.call('GETRANGE', key, '0', '20')))
        who, old, new, mark = unpack('<c8i6i6I6', entry)
      end
    else
      state = redis.pcall('GET', key)
      length = state and #state
      if length == 53 then
        tag, total, earliest, latest, who, old, new, mark = unpack('<BdI6I6c8i6i6I6', state)
      elseif length and length > 53 and length < 789 and length % 32 == 21 then
        at = state:find(holder, 22, true)
        -- The same bytes may stand in the middle of entries.
        if at and at % 32 == 22 then
          tag, total, earliest, latest = unpack('<BdI6I6', state)
          who, old, new, mark = holder, unpack('<i6i6I6', state, at + 8)
        end
      elseif not state and is_acquire and times * cost <= limit then
        redis.call('SET', key, pack('<BdI6I6c8i6i6I6I6', 252, times * cost, ends, ends, holder, 0, times * cost,
          256 * generation + 255, ends), 'PXAT', ('%d'):format(ends))
        return seconds .. ' ' .. micros .. ' ' .. pack('BBBB', 204, times, 145, 194)
      end
    end
  end
  if tag == 252 and who == holder then
    local age, units, change, admitted = mark - 256 * generation, old + new, -times * cost, 0
    if is_acquire then
      local room = limit - total
      admitted = times * cost <= room and times or room < cost and 0 or (room - room % cost) / cost
      change = admitted * cost
    end
    if age >= 0 and age <= 255 and units >= 0 and units + change >= 0 and total >= units and total % 1 == 0 and total < 2 ^ 31
      and now_ms < earliest and latest <= now_ms + 4 * lease and ends >= earliest and ends <= latest then
      local reply = seconds .. ' ' .. micros .. ' ' .. pack('>BBBBI4', 204, admitted, 145, 206, 2 * total + 1)
      total, new = total + change, new + change
      if change == 0 then
        return reply
      elseif length ~= 53 then
        redis.call('SETRANGE', key, '1', pack('<d', total))
        redis.call('SETRANGE', key, offset or ('%d'):format(at - 1), pack('<c8i6i6I6I6', holder, old, new, mark, ends))
      elseif new == 0 and old == 0 and age == 255 then
        redis.call('DEL', key)
      else
        redis.call('SETRANGE', key, '1', pack('<dI6I6c8i6i6I6I6', total, earliest, latest, holder, old, new, mark, ends))
      end
      return reply
    end
  end
end
