-- Units held at this moment. Each process that holds has one entry, which only its own calls change.
--
--   state   tag B (252), total d, earliest I6, latest I6, up to 1,024 entries
--   entry   holder c8, old i6, new i6, 256 × generation + age I6, expires I6
--   charge  cost d, limit d
--   caller  holder c8, generation I6, lease I6: whose call it is. Times are ms
--
-- `total` is the sum over the entries of old + new, each not less than 0. `earliest` and `latest` are bounds on when they expire.
--
-- Calls overtake each other, are lost, and arrive after their process has given them up. Nevertheless an entry becomes exact once
-- in each *generation*. A process begins one now and then, and its calls name the one that they were sent in. An entry counts in
-- `new` what the calls of the newest generation changed, and in `old` what the earlier ones did. Within each the order does not
-- matter: acquires add, releases subtract. When all calls of earlier generations have been answered or given up, the process
-- *tells* what they come to. That replaces `old`, and leaves alone what `new` counts meanwhile. From then on a call of a
-- generation before the telling is void: its process has given it up. No call that is still under way is ever guessed about.
--
-- The age is the number of generations since the last telling, 255 at most. A call that is older has long been given up.
--
-- An entry lives for a lease after its process's last call, at least three quarters of one, and without a process until then. It
-- stays for that time even if nothing is held, since a void call must meet it; but a key with nothing else goes at once.
local holder, generation, lease, now_ms, ends, last_end

local function called_by(run)
  holder, generation, lease = unpack('<c8I6I6', run, 3)
  now_ms = floor(now / 1000)
  -- Moves four times in each lease, so that most calls overwrite the state in place.
  ends = now_ms - now_ms % floor(lease / 4) + lease
  -- Beyond that an entry was left by a clock that stepped back. Below it may be of a process with a longer lease.
  last_end = now_ms + 4 * lease
end

local function held()
  local TAG, HEAD, ENTRY, MOST, NEVER, OLDEST = 252, 21, 32, 1024, 2 ^ 48 - 1, 255
  -- Up to here one write is cheaper than one for the head and one for the entry: the server reads every byte of each text that is
  -- made.
  local NEAR = 150

  local function parse(charge, run, pos)
    if not holder then
      error('a held charge, and nobody who holds it')
    end
    charge.cost, charge.limit, pos = unpack('<dd', run, pos)
    return pos
  end

  local function fresh(state)
    state.entries, state.total, state.others, state.earliest, state.latest = 0, 0, 0, NEVER, 0
    state.text, state.old, state.new, state.generation, state.told = '', 0, 0, generation, generation - OLDEST
  end

  -- The text without the entries that have expired, and the units that other processes held by these. There may be 1,024 entries:
  -- only the expiry of most is read, and those that stay are copied in runs.
  local function swept(text, total)
    local parts, from, earliest, latest, reclaimed = {}, 1, NEVER, 0, 0
    for at = HEAD + 1, #text, ENTRY do
      local expires = unpack('<I6', text, at + 26)
      if expires <= now_ms then
        local old, new = unpack('<i6i6', text, at + 8)
        local units = max(old + new, 0)
        total = total - units
        if text:sub(at, at + 7) ~= holder then
          reclaimed = reclaimed + units
        end
        parts[#parts + 1] = text:sub(from, at - 1)
        from = at + ENTRY
      else
        if expires > last_end then
          expires = last_end
          parts[#parts + 1] = text:sub(from, at + 25) .. pack('<I6', expires)
          from = at + ENTRY
        end
        if expires < earliest then
          earliest = expires
        end
        if expires > latest then
          latest = expires
        end
      end
    end
    parts[#parts + 1] = text:sub(from)
    return table.concat(parts), max(total, 0), earliest, latest, min(reclaimed, NEVER)
  end

  -- The text may be a part of a long state: the head and the caller's entry, which stand apart.
  local function read(state, text, _, part)
    local length = part and part.length or #text
    local entries = (length - HEAD) / ENTRY
    if entries < 1 or entries > MOST or entries % 1 ~= 0 then
      return
    end
    local tag, total, earliest, latest = unpack('<BdI6I6', text)
    if tag ~= TAG or not is_whole(total) then
      return
    end
    local is_swept, reclaimed = now_ms >= earliest or latest > last_end, 0
    if is_swept then
      text, total, earliest, latest, reclaimed = swept(text, total)
      length = #text
      entries = (length - HEAD) / ENTRY
    end
    -- The same bytes may stand in the middle of entries.
    local at = part and HEAD + 1 or text:find(holder, HEAD + 1, true)
    while at and (at - HEAD - 1) % ENTRY ~= 0 do
      at = text:find(holder, at + 1, true)
    end
    local old, new, mark, entry = 0, 0, 256 * generation + OLDEST, nil
    if at then
      entry = text:sub(at, at + 31)
      old, new, mark = unpack('<i6i6I6', entry, 9)
      at = part and part.at or at
    end
    local age = mark % 256
    local newest = (mark - age) / 256
    local is_full, is_void = not at and entries >= MOST, generation < newest - age
    -- The part of the reply about this state.
    local digest = is_swept and pack('<BdI6I6', TAG, total, earliest, latest) or text:sub(1, HEAD)
    if at and not is_void then
      digest = digest .. entry .. (length >= FAR and pack('<I2', (at + 10) / 32) or '')
    elseif not is_void then
      digest = digest .. (is_full and '\1' or '\0')
    end
    if reclaimed > 0 then
      digest = digest .. pack('<I6', reclaimed)
    end
    state.is_known, state.changed, state.digest = true, is_swept, digest
    state.text, state.entries, state.total, state.others = text, entries, total, total - max(old + new, 0)
    state.earliest, state.latest, state.at, state.is_part, state.is_swept = earliest, latest, at, part, is_swept
    state.old, state.new, state.generation, state.told = old, new, newest, newest - age
    -- Takes nothing: there is no room for the process, or the call was given up.
    state.is_barred = is_full or is_void
  end

  local function advance() end

  local function judge(state, charge)
    charge.passes = charge.cost == 0 or state.total + charge.cost <= charge.limit
  end

  -- Counts what this call changes: behind whatever an earlier generation changed.
  local function count(state, units)
    local before = max(state.old + state.new, 0)
    if generation > state.generation then
      state.old, state.new, state.generation = state.old + state.new, units, generation
    elseif generation == state.generation then
      state.new = state.new + units
    else
      state.old = state.old + units
    end
    state.is_touched, state.changed = true, true
    return before
  end

  local function take(state, charge)
    count(state, charge.cost)
    state.total = state.total + charge.cost
  end

  -- A release of units that were lost with the process's lease gives nothing back.
  local function release(state, units)
    if state.is_barred or not (state.at or state.is_touched) then
      return
    end
    local before = count(state, -units)
    state.total = state.total - before + max(state.old + state.new, 0)
  end

  -- The units that the calls of all earlier generations hold.
  local function tell(state, units)
    if state.is_barred or generation < state.generation then
      return
    end
    count(state, 0)
    state.old, state.told = units, generation
  end

  local function write(key, state)
    local text, at, earliest, latest = state.text, state.at, state.earliest, state.latest
    local entries, total, entry = state.entries, state.others + max(state.old + state.new, 0), nil
    if state.is_touched then
      entries = at and entries or entries + 1
      local age = min(state.generation - state.told, OLDEST)
      if entries == 1 and state.old == 0 and state.new == 0 and age == OLDEST then
        entries = 0
      end
      entry = pack('<i6i6I6I6', state.old, state.new, 256 * state.generation + age, ends)
      if at and ends >= earliest and ends <= latest and not state.is_swept and entries > 0 then
        if at < NEAR and not state.is_part then
          return redis.call('SETRANGE', key, '1', pack('<d', total) .. text:sub(10, at + 7) .. entry)
        end
        redis.call('SETRANGE', key, '1', pack('<d', total))
        return redis.call('SETRANGE', key, ('%d'):format(at + 7), entry)
      end
      earliest, latest = min(earliest, ends), max(latest, ends)
    end
    if entries == 0 then
      return redis.call('DEL', key)
    end
    local parts = pack('<BdI6I6', TAG, total, earliest, latest)
    if not entry then
      parts = parts .. text:sub(HEAD + 1)
    elseif at then
      parts = parts .. text:sub(HEAD + 1, at + 7) .. entry .. text:sub(at + ENTRY)
    else
      parts = parts .. text:sub(HEAD + 1) .. holder .. entry
    end
    redis.call('SET', key, parts, 'PXAT', ('%d'):format(latest))
  end

  return {
    parse = parse, fresh = fresh, read = read, advance = advance, judge = judge, take = take, release = release,
    tell = tell, write = write,
  }
end
