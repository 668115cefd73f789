-- Calls that acquire and release what is held, one enforced charge to a request and one request to a key: many callers with a
-- limit each, or one limit many times. It does the work of main.lua, by the rule of held.lua, at a third of the cost. All other
-- cases fall through to main.lua before anything is written: whatever has expired, a void call, a key that is full or foreign.
--
-- The server reads every byte of each text that is made. So of a long state only the head and the holder's entry are read, if the
-- call says where that stands, and written in place. The entry at that place is checked first, because entries move when others
-- expire.
if #ARGV > 1 and #run >= 22 and run:byte(2) == 4 then
  local holder, generation, lease = unpack('<c8I6I6', run, 3)
  local now_ms = (now - now % 1000) / 1000
  local quarter = (lease - lease % 4) / 4
  local ends, last_end = now_ms - now_ms % quarter + lease, now_ms + 4 * lease
  local several = #KEYS > 1
  -- The numbers that commands take, as texts: to make one costs as much as half a command.
  local texts = {}
  -- By number of key, where the entry is expected: its first byte, the entry, and the length of the state.
  local places, entries, lengths = nil, nil, nil
  if is_told then
    found, places, entries, lengths = {}, {}, {}, {}
    for i = 1, #run == 22 + 2 * #KEYS and #KEYS or 0 do
      local at, key = 32 * unpack('<I2', run, 21 + 2 * i) - 10, KEYS[i]
      places[i] = at
      if at > 0 then
        local from = texts[at]
        if not from then
          from = ('%d'):format(at - 1)
          texts[at], texts[-at] = from, ('%d'):format(at + 30)
        end
        found[i], entries[i] = redis.pcall('GETRANGE', key, '0', '20'), redis.pcall('GETRANGE', key, from, texts[-at])
        lengths[i] = redis.pcall('STRLEN', key)
      else
        found[i], entries[i] = redis.pcall('GET', key), false
      end
    end
  end
  local usual, admitted, missing = #KEYS > 0, 0, nil
  -- By number of key, the run that asks for it; of a run: how often, the cost, and the limit, which a release has not.
  local asks, times, costs, limits = {}, {}, {}, {}
  for r = 2, #ARGV do
    local words = ARGV[r]
    local kind, cost, limit
    if #words < 22 then
      usual = false
      break
    end
    times[r], kind, cost, limit = unpack('<BI4dd', words)
    costs[r], limits[r] = cost, kind == 0x60100 and limit
    if not several then
      times[r] = times[r] * (#words - 21)
    end
    usual = usual and cost > 0 and (kind == 0x60100 or kind == 0x2060106)
    local numbers = usual and several and { words:byte(22, -1) } or {}
    for n = 1, #numbers do
      local i = numbers[n]
      usual = usual and not asks[i]
      asks[i] = r
    end
  end
  -- By number of key: its part of the reply, and the write if there is one. A write covers the state from the second byte on, or
  -- the head and the entry at its offset, or the whole state with its expiry.
  local digests, values, heads, offsets, sets, first, final = {}, {}, nil, nil, nil, 2, #ARGV
  for i = 1, usual and #KEYS or 0 do
    local text, at, length, tag, who, digest = found[i], nil, 0, 252, nil, nil
    local entry = entries and entries[i]
    local total, earliest, latest, old, new, mark = 0, ends, ends, 0, 0, 256 * generation + 255
    if entry then
      length = lengths[i]
      -- The value of another type has errors in these places.
      if #entry == 32 and length <= 32789 and length % 32 == 21 then
        tag, total, earliest, latest = unpack('<BdI6I6', text)
        who, old, new, mark = unpack('<c8i6i6I6', entry)
        at = places[i]
      end
      tag = who == holder and tag
    elseif text then
      length = #text
      if length == 53 then
        tag, total, earliest, latest, who, old, new, mark = unpack('<BdI6I6c8i6i6I6', text)
        at = who == holder and 22
      elseif length > 53 and length < 32789 and length % 32 == 21 then
        tag, total, earliest, latest = unpack('<BdI6I6', text)
        at = text:find(holder, 22, true)
        -- The same bytes may stand in the middle of entries.
        while at and at % 32 ~= 22 do
          at = text:find(holder, at + 1, true)
        end
        if at then
          old, new, mark = unpack('<i6i6I6', text, at + 8)
          -- So that the next call need not search.
          digest = length >= FAR and text:sub(1, 21) .. text:sub(at, at + 31) .. pack('<I2', (at + 10) / 32)
        end
      else
        tag = nil
      end
      if not at then
        old, new, mark = 0, 0, 256 * generation + 255
      end
    else
      missing = missing or {}
      missing[#missing + 1] = KEYS[i]
    end
    digests[i] = text and (digest or 2 * total + (at and 1 or 0))
    local age, units = mark - 256 * generation, old + new
    if age < 0 then
      -- The first call of a generation.
      age = mark % 256
      age = age + generation - (mark - age) / 256
      age = age < 255 and age or 255
      old, new = units, 0
    end
    if tag ~= 252 or total < units or total % 1 ~= 0 or total >= 2 ^ 52 or units < 0 or age > 255
      or length > 0 and (now_ms >= earliest or latest > last_end) then
      usual = false
      break
    end
    local change, is_touched = 0, false
    if several then
      first, final = asks[i], asks[i]
    end
    for r = first or 1, final or 0 do
      local cost, limit, count = costs[r], limits[r], times[r]
      if limit then
        local room = limit - total - change
        if count * cost > room then
          count = (room - room % cost) / cost
        end
        if count > 0 then
          admitted, change, is_touched = admitted + count, change + count * cost, true
        end
      elseif at or is_touched then
        change, is_touched = change - count * cost, true
        usual = usual and units + change >= 0
      end
    end
    if is_touched then
      total, new, mark = total + change, new + change, 256 * generation + age
      if old == 0 and new == 0 and age == 255 and (length == 0 or at and length == 53) then
        values[i] = ''
      elseif at and ends >= earliest and ends <= latest then
        if at == 22 and length == 53 then
          values[i] = pack('<dI6I6c8i6i6I6I6', total, earliest, latest, holder, old, new, mark, ends)
        elseif at < 150 and not entry then
          values[i] = pack('<d', total) .. text:sub(10, at + 7) .. pack('<i6i6I6I6', old, new, mark, ends)
        else
          heads, offsets = heads or {}, offsets or {}
          local from = texts[at]
          if not from then
            from = ('%d'):format(at - 1)
            texts[at] = from
          end
          heads[i], offsets[i] = pack('<d', total), from
          values[i] = pack('<c8i6i6I6I6', holder, old, new, mark, ends)
        end
      elseif entry then
        -- Its expiry moves, so it is written whole.
        usual = false
      else
        earliest, latest = earliest < ends and earliest or ends, latest > ends and latest or ends
        local head, entry = pack('<BdI6I6', 252, total, earliest, latest), pack('<i6i6I6I6', old, new, mark, ends)
        if at then
          values[i] = head .. text:sub(22, at + 7) .. entry .. text:sub(at + 32)
        else
          values[i] = head .. (text and text:sub(22) or '') .. holder .. entry
        end
        sets = sets or {}
        sets[i] = ('%d'):format(latest)
      end
    end
  end
  if usual and not (missing and several and redis.call('EXISTS', spread(missing)) > 0) then
    for i = 1, #KEYS do
      local value = values[i]
      if value == '' then
        redis.call('DEL', KEYS[i])
      elseif sets and sets[i] then
        redis.call('SET', KEYS[i], value, 'PXAT', sets[i])
      elseif offsets and offsets[i] then
        redis.call('SETRANGE', KEYS[i], '1', heads[i])
        redis.call('SETRANGE', KEYS[i], offsets[i], value)
      elseif value then
        redis.call('SETRANGE', KEYS[i], '1', value)
      end
    end
    return seconds .. ' ' .. micros .. ' ' .. cmsgpack.pack(admitted, digests)
  end
  if is_told then
    -- The paths below read whole states, but for those whose entry stands where the call says, and is overwritten there.
    local whole, numbers = {}, {}
    parts = {}
    for i = 1, #KEYS do
      local entry, head, tag, total, earliest, latest = entries[i], found[i], nil, nil, nil, nil
      if entry and #entry == 32 and lengths[i] <= 32789 and lengths[i] % 32 == 21 and entry:sub(1, 8) == holder then
        tag, total, earliest, latest = unpack('<BdI6I6', head)
      end
      if tag == 252 and total % 1 == 0 and now_ms < earliest and latest <= last_end and ends >= earliest and ends <= latest then
        found[i], parts[i] = head .. entry, { at = places[i], length = lengths[i] }
      elseif entry ~= false or type(head) == 'table' then
        local n = #whole + 1
        whole[n], numbers[n] = KEYS[i], i
      end
    end
    local texts
    texts, failed = read(whole)
    if failed then
      return failed
    end
    for n = 1, #whole do
      found[numbers[n]] = texts[n]
    end
  end
end
