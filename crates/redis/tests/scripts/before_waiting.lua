-- The script of the version before requests could wait for their turn (1f2d52d), as the processes that run it during a deploy send
-- it: its parts for GCRA, without its comments, without the rules of the other algorithms, and without the paths that only make
-- usual calls cheaper.
local redis, struct = redis, struct
local clock = redis.call('TIME')
local seconds, micros = clock[1], clock[2]
local now = seconds * 1000000 + micros
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
  if of == tag and at % 1 == 0 and at >= 0 and at <= now + full then
    local to = (at < now and now or at) + us
    if to > now + full then
      return seconds .. '-' .. micros .. (state or '')
    end
    local cell = tag < 138 and 1024 or 2 ^ (tag - 128)
    local from = to - to % cell
    if state and at >= from then
      redis.call('SETRANGE', key, '1', struct.pack('<d', to))
    else
      redis.call('SET', key, struct.pack('<Bd', tag, to), 'PXAT', ('%d'):format((from + cell) / 1000 + 1))
    end
    if at < now then
      return now
    end
    return seconds .. '+' .. micros .. state
  end
end
local KEYS, ARGV, spread, pack, unpack = KEYS, ARGV, unpack, struct.pack, struct.unpack
local MARKS = 65521
if is_short then
  ARGV = { '\1\0\1\1\0' .. run .. pack('<ddd', 1, 0, 0) }
end
local function read()
  if #KEYS ~= 1 then
    return #KEYS > 0 and redis.call('MGET', spread(KEYS)) or {}
  end
  if state == nil then
    state = redis.pcall('GET', key)
  end
  return { state }, state and state.err and state.err:sub(1, 9) ~= 'WRONGTYPE' and state
end
local is_told = #ARGV > 1 and #run > 22 and run:byte(2) == 4
local FAR = 789
local found, failed
if not is_told then
  found, failed = read()
  if failed then
    return failed
  end
end

local function cell_of(tag)
  return tag < 138 and 1024 or 2 ^ (tag - 128)
end

local function admit(at, rest, us, more, denominator, latest, latest_rest, times)
  if at < now then
    at, rest = now, 0
  end
  for admitted = 0, times - 1 do
    local after, after_rest = at + us, rest + more
    if after_rest >= denominator then
      after, after_rest = after + 1, after_rest - denominator
    end
    if after > latest or (after == latest and after_rest > latest_rest) then
      return admitted, at, rest
    end
    at, rest = after, after_rest
  end
  return times, at, rest
end

local byte, floor, max, min = string.byte, math.floor, math.max, math.min

local function set_until(key, value, ends)
  redis.call('SET', key, value, 'PXAT', ('%d'):format(ends / 1000 + 1))
end

local DEBT_CEILING = 8

local function is_whole(number)
  return number >= 0 and number < 2 ^ 53 and number % 1 == 0
end

local function counted_up(count, charge)
  return max(count, min(count + charge.cost, charge.quota.limit * DEBT_CEILING))
end

local function gcra()
  local SHORT, LONG, HEAD, CREDIT, TOLD_APART, COARSENESS, LONGEST = 9, 16, 23, 28, 32, 2, 2 ^ 52
  local PARTS, LARGEST_TAG = 32, 176
  local AT, FROM, LENGTH, LAST, NEXT = 0, 1, 2, 3, 4

  local function ahead(us, rest)
    if us < now then
      return 0, 0
    end
    return us - now, rest
  end

  local function stands(state, quota)
    if state.rest > 0 and (state.mark ~= quota.mark or state.rest >= quota.denominator) then
      return state.at + 1, 0
    end
    return state.at, state.rest
  end

  local function parts_of(quota)
    return max(floor((quota.full / 2 ^ (quota.tag - 128) - 1) * PARTS), 0)
  end

  local function is_of_longer(state, quota)
    return state.tag > quota.tag or (state.tag == quota.tag and state.parts > parts_of(quota))
  end

  local function is_before(us, rest, other_us, other_rest)
    return us < other_us or (us == other_us and rest < other_rest)
  end

  local function forget_dead_credits(state)
    if state.last > 0 and state.last <= now then
      state.credits, state.last, state.length = '', 0, 0
    end
  end

  local function leave(state, quota, us, rest)
    local at = now + us
    if at == state.at and rest == state.rest then
      return
    end
    if not is_before(quota.full, quota.full_rest, us, rest) then
      state.tag, state.parts = quota.tag, 0
    elseif not is_before(quota.full, quota.full_rest, ahead(stands(state, quota))) or not is_of_longer(state, quota) then
      state.tag, state.parts = quota.tag, parts_of(quota)
    end
    state.at, state.rest, state.mark, state.changed = at, rest, quota.mark, true
    forget_dead_credits(state)
  end

  local function quota(run, pos)
    local us, full, tag, denominator, rest, full_rest, after = unpack('<ddBddd', run, pos)
    return {
      us = us, rest = rest, denominator = denominator, mark = denominator % MARKS, tag = tag, full = full,
      full_rest = full_rest, latest = now + full,
    }, us + rest, after
  end

  local function furthest(state, quota)
    if is_of_longer(state, quota) then
      return floor(2 ^ (state.tag - 128) * (PARTS + state.parts) / PARTS) * DEBT_CEILING, 0
    end
    local rests = quota.full_rest * DEBT_CEILING
    return quota.full * DEBT_CEILING + floor(rests / quota.denominator), rests % quota.denominator
  end

  local function fresh()
    return {
      at = 0, rest = 0, mark = 0, tag = 128, parts = 0, last = 0, found = '', found_tag = 0, length = 0, from = 0, changed = false,
    }
  end

  local function read(found)
    local length = #found
    local count = (length - HEAD) / CREDIT
    if length ~= SHORT and length ~= LONG and (count < 1 or count % 1 ~= 0 or count > TOLD_APART) then
      return false
    end
    local tag, at = unpack('<Bd', found)
    if tag < 128 or tag > LARGEST_TAG or not is_whole(at) then
      return false
    end
    local state = {
      at = at, rest = 0, mark = 0, tag = tag, parts = 0, last = 0, found = found, found_tag = tag, length = length, from = at,
      changed = false,
    }
    if length > SHORT then
      state.rest, state.mark, state.parts = unpack('<I4I2B', found, SHORT + 1)
      state.from = at + 1
      if state.parts >= PARTS then
        return false
      end
    end
    if length > LONG then
      state.last = unpack('<I7', found, LONG + 1)
      state.from = max(state.from, state.last)
      if not is_whole(state.last) then
        return false
      end
    end
    return state
  end

  local function rebase(state, quota)
    if state.at < quota.latest then
      return
    end
    local us, rest = ahead(stands(state, quota))
    local most_us, most_rest = furthest(state, quota)
    if is_before(most_us, most_rest, us, rest) then
      leave(state, quota, most_us, most_rest)
    end
  end

  local function passes(state, charge)
    local quota, admitted = charge.quota, nil
    local at, rest = stands(state, quota)
    admitted, charge.to, charge.to_rest = admit(at, rest, quota.us, quota.rest, quota.denominator, quota.latest,
      quota.full_rest, 1)
    return admitted == 1 or charge.cost == 0
  end

  local function take(state, charge)
    local quota = charge.quota
    state.at, state.rest, state.mark, state.changed = charge.to, charge.to_rest, quota.mark, true
    state.tag, state.parts = quota.tag, 0
    forget_dead_credits(state)
  end

  local function debit(state, charge)
    local quota = charge.quota
    local left_us, left_rest = ahead(stands(state, quota))
    local most_us, most_rest = furthest(state, quota)
    local us, rest = left_us + quota.us, left_rest + quota.rest
    if rest >= quota.denominator then
      us, rest = us + 1, rest - quota.denominator
    end
    if is_before(most_us, most_rest, us, rest) then
      us, rest = most_us, most_rest
    end
    if is_before(us, rest, left_us, left_rest) then
      us, rest = left_us, left_rest
    end
    leave(state, quota, us, rest)
  end

  local function packed(state)
    return state.credits or state.found:sub(HEAD + 1)
  end

  local function credits_of(state)
    local credits = packed(state)
    local count = #credits / CREDIT * NEXT
    credits = { unpack('<' .. ('I7'):rep(count), credits) }
    credits[count + 1] = nil
    return credits
  end

  local function moved_up(credits, at, us, rest)
    for c = 1, #credits, NEXT do
      local from = credits[c + FROM]
      if at <= credits[c + AT] and is_before(from, 0, us, rest) then
        us = max(us - credits[c + LENGTH], 0)
        if is_before(us, rest, from, 0) then
          us, rest = from, 0
        end
      end
    end
    return us, rest
  end

  local function remember(state, credits, from, length, last)
    local kept, size, latest = {}, 0, last
    for c = 1, #credits, NEXT do
      if credits[c + LAST] > now then
        for part = AT, LAST do
          kept[size + 1 + part] = credits[c + part]
        end
        size, latest = size + NEXT, max(latest, credits[c + LAST])
      end
    end
    if size == TOLD_APART * NEXT then
      local older, after = 1, 0
      for c = size + 1 - 2 * NEXT, 1, -NEXT do
        local newer = kept[c + NEXT + LENGTH]
        if (kept[c + LENGTH] + newer) * COARSENESS <= after then
          older = c
        end
        after = after + newer
      end
      local newer = older + NEXT
      kept[newer + FROM] = min(kept[newer + FROM], kept[older + FROM])
      kept[newer + LENGTH] = min(kept[newer + LENGTH] + kept[older + LENGTH], LONGEST)
      kept[newer + LAST] = max(kept[newer + LAST], kept[older + LAST])
      for c = older, size - NEXT do
        kept[c] = kept[c + NEXT]
      end
      size = size - NEXT
    end
    kept[size + 1 + AT], kept[size + 1 + FROM], kept[size + 1 + LENGTH], kept[size + 1 + LAST] = now, from, length, last
    size = size + NEXT
    state.credits, state.last = pack('<' .. ('I7'):rep(size), spread(kept, 1, size)), latest
    state.length, state.changed = 0, true
  end

  local function less(quota, us, rest, less_us, less_rest)
    if rest < less_rest then
      return us - less_us - 1, rest + quota.denominator - less_rest
    end
    return us - less_us, rest - less_rest
  end

  local function give_back(state, charge, at, full_us, full_rest)
    local quota = charge.quota
    local credits = credits_of(state)
    local shows_us, shows_rest = ahead(moved_up(credits, at, full_us, full_rest))
    local left_us, left_rest = ahead(stands(state, quota))
    local us, rest = quota.us, quota.rest
    if is_before(shows_us, shows_rest, us, rest) then
      us, rest = shows_us, shows_rest
    end
    if is_before(left_us, left_rest, us, rest) then
      us, rest = left_us, left_rest
    end
    if (us == 0 and rest == 0) or at > now then
      return
    end
    local last, from = state.at + (state.rest > 0 and 1 or 0), less(quota, shows_us, shows_rest, us, rest)
    left_us, left_rest = less(quota, left_us, left_rest, us, rest)
    leave(state, quota, left_us, left_rest)
    remember(state, credits, now + from, us + (rest > 0 and 1 or 0), last)
  end

  local function write(key, state, quota)
    local at, rest, last, tag, parts, cell = state.at, state.rest, state.last, state.tag, state.parts, cell_of(state.tag)
    local is_short = rest == 0 and parts == 0 and last == 0
    local stays_short = state.length == SHORT and is_short
    if tag == state.found_tag and (stays_short or state.length > SHORT) then
      local ends = stays_short and at or max(at + 1, last)
      if ends - ends % cell == state.from - state.from % cell then
        return redis.call('SETRANGE', key, '1', stays_short and pack('<d', at)
          or pack('<dI4I2B', at, rest, state.mark, parts))
      end
    end
    local value, ends = pack('<Bd', tag, at), at
    if not is_short then
      value, ends = value .. pack('<I4I2B', rest, state.mark, parts), at + 1
    end
    if last > 0 then
      value, ends = value .. pack('<I7', last) .. packed(state), max(ends, last)
    end
    set_until(key, value, ends - ends % cell + cell)
  end

  return {
    quota = quota,
    fresh = fresh,
    read = read,
    rebase = rebase,
    passes = passes,
    take = take,
    debit = debit,
    give_back = give_back,
    write = write,
  }
end
local fixed_window, sliding_window, rolling_window, sliding_log, held
local RULES = { gcra, fixed_window, sliding_window, rolling_window, sliding_log, held }
local ENFORCE, SHADOW = 0, 1
local DECIDE, CREDIT, DEBIT, RESET, CALLER, TELL, RELEASE = 0, 1, 2, 3, 4, 5, 6

local states, last, removed = {}, {}, {}
local rules, keys, admitted = {}, {}, 0

local missing = {}
for i = 1, #KEYS do
  if not found[i] then
    missing[#missing + 1] = KEYS[i]
  end
end
if #missing > 0 and #KEYS > 1 and redis.call('EXISTS', spread(missing)) > 0 then
  for i = 1, #KEYS do
    if not found[i] and redis.call('EXISTS', KEYS[i]) == 1 then
      found[i] = ''
    end
  end
end

local function rule_of(algorithm)
  local rule = rules[algorithm]
  if not rule then
    rule = RULES[algorithm]()
    rules[algorithm] = rule
  end
  return rule
end

local function state_of(i, charge)
  local state = states[i]
  if state == nil then
    if found[i] then
      state = charge.rule.read(found[i], charge.quota)
      if not state then
        found[i] = ''
      elseif state.digest then
        found[i], last[i] = state.digest, charge
      end
    else
      state = charge.rule.fresh(charge.quota)
    end
    states[i] = state
  end
  return state
end

local function advance(i, charge, is_decision)
  local state, rule = states[i], charge.rule
  if rule.advance then
    rule.advance(state, charge.quota)
  elseif is_decision then
    rule.rebase(state, charge.quota)
  end
  last[i] = charge
  return state
end

local function decide(charges, run, pos)
  local width, open, is_barred = #charges, true, false
  for c = 1, width do
    local i = byte(run, pos + c)
    keys[c] = i
    local state = states[i] or state_of(i, charges[c])
    is_barred = is_barred or not state or state.is_barred
  end
  if is_barred then
    return 0
  end
  for c = 1, width do
    local charge = charges[c]
    if charge.mode == ENFORCE then
      open = charge.rule.passes(advance(keys[c], charge, true), charge) and open
    end
  end
  for c = 1, width do
    local charge, i = charges[c], keys[c]
    if charge.mode == ENFORCE then
      if open and charge.cost > 0 then
        charge.rule.take(states[i], charge)
      end
    else
      local state = advance(i, charge, true)
      if charge.mode == SHADOW and charge.cost > 0 and charge.rule.passes(state, charge) then
        charge.rule.take(state, charge)
      end
    end
  end
  return open and 1 or 0
end

local function settle(verb, charge, run, pos, times)
  local i, after = byte(run, pos), pos + 1
  local at, full_us, full_rest, told
  if verb == CREDIT then
    at, full_us, full_rest, after = unpack('<ddI4', run, after)
  elseif verb == TELL then
    told, after = unpack('<I6', run, after)
  end
  if state_of(i, charge) then
    if verb == RESET then
      states[i], removed[i] = charge.rule.fresh(charge.quota), true
    elseif verb == DEBIT then
      charge.rule.debit(advance(i, charge), charge)
    elseif verb == RELEASE then
      charge.rule.release(advance(i, charge), times * charge.cost)
    elseif verb == TELL then
      charge.rule.tell(advance(i, charge), told)
    else
      charge.rule.give_back(advance(i, charge), charge, at, full_us, full_rest)
    end
  end
  return after
end

for r = 1, #ARGV do
  local run, charges = ARGV[r], {}
  local times, verb, width, pos = unpack('<BBB', run)
  if verb == CALLER then
    called_by(run)
    width, pos = 0, #run + 1
  elseif width == 0 then
    return redis.error_reply('ERR a run without charges')
  end
  for c = 1, width do
    local algorithm, mode, cost, quota
    algorithm, mode, pos = unpack('<BB', run, pos)
    local rule = rule_of(algorithm)
    quota, cost, pos = rule.quota(run, pos)
    charges[c] = { rule = rule, quota = quota, mode = mode, cost = cost, to = 0, to_rest = 0 }
  end
  if verb ~= DECIDE then
    while pos <= #run do
      pos = settle(verb, charges[1], run, pos, times)
    end
  elseif pos > #run then
    for i = 1, #KEYS do
      for _ = 1, times do
        admitted = admitted + decide(charges, string.char(i), 0)
      end
    end
  else
    for request = pos - 1, #run - width, width do
      for _ = 1, times do
        admitted = admitted + decide(charges, run, request)
      end
    end
  end
end

for i = 1, #KEYS do
  local state = states[i]
  if state and state.changed then
    last[i].rule.write(KEYS[i], state, last[i].quota)
  elseif removed[i] then
    redis.call('DEL', KEYS[i])
  end
end

return seconds .. ' ' .. micros .. ' ' .. cmsgpack.pack(admitted) .. cmsgpack.pack(found)
