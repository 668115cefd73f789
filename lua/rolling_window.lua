-- A count for each of the last k parts of the period. Their sum is held to the limit.
--
--   state   tag B (250), newest d, k × count d: each at its bucket's number modulo k, `newest` is the highest number
--   charge  cost d, limit d, period d, buckets d
local function rolling_window()
  local function parse(charge, run, pos)
    charge.cost, charge.limit, charge.period, charge.buckets, pos = unpack('<dddd', run, pos)
    charge.width = charge.period / charge.buckets
    charge.bucket = floor(now / charge.width)
    return pos
  end

  local function fresh(state, charge)
    state.newest, state.sum, state.counts = 0, 0, {}
    for i = 1, charge.buckets do
      state.counts[i] = 0
    end
  end

  local function read(state, text, charge)
    local buckets, tag = charge.buckets, nil
    if #text == 9 + 8 * buckets then
      tag, state.newest = unpack('<Bd', text)
    end
    state.is_known, state.sum = tag == 250 and is_whole(state.newest), 0
    if state.is_known then
      state.counts = { unpack('<' .. ('d'):rep(buckets), text, 10) }
      -- The last value is the start of the next one.
      state.counts[buckets + 1] = nil
      for i = 1, buckets do
        local count = state.counts[i]
        state.is_known, state.sum = state.is_known and is_whole(count), state.sum + count
      end
    end
  end

  local function advance(state, charge)
    local newest, counts, bucket, buckets = state.newest, state.counts, charge.bucket, charge.buckets
    if newest < bucket then
      for passed = bucket - min(bucket - newest, buckets) + 1, bucket do
        local i = passed % buckets + 1
        state.sum, counts[i] = state.sum - counts[i], 0
      end
      state.newest, state.changed = bucket, true
    elseif newest > bucket + buckets then
      -- The clock stepped back: the counts come along, the newest to now's bucket. After a step of less than a period the newest
      -- bucket stays until it is over.
      state.counts = {}
      for age = 0, buckets - 1 do
        state.counts[(bucket - age) % buckets + 1] = counts[(newest - age) % buckets + 1]
      end
      state.newest, state.changed = bucket, true
    end
  end

  local function judge(state, charge)
    charge.passes = charge.cost == 0 or state.sum + charge.cost <= charge.limit
  end

  local function take(state, charge)
    local i = state.newest % charge.buckets + 1
    state.counts[i], state.sum, state.changed = state.counts[i] + charge.cost, state.sum + charge.cost, true
  end

  local function debit(state, charge)
    local i, more = state.newest % charge.buckets + 1, counted_up(state.sum, charge) - state.sum
    state.counts[i], state.sum, state.changed = state.counts[i] + more, state.sum + more, true
  end

  local function give_back(state, charge, at)
    local bucket = floor(at / charge.width)
    if at <= now and bucket + charge.buckets > state.newest then
      local i = bucket % charge.buckets + 1
      local back = min(charge.cost, state.counts[i])
      state.counts[i], state.sum, state.changed = state.counts[i] - back, state.sum - back, true
    end
  end

  local function expiry(state, charge)
    state.expires = (state.newest + 2 * charge.buckets) * charge.width
  end

  local function form(state, charge)
    state.text = pack('<Bd' .. ('d'):rep(charge.buckets), 250, state.newest, spread(state.counts, 1, charge.buckets))
  end

  return {
    parse = parse, fresh = fresh, read = read, advance = advance, judge = judge, take = take, debit = debit,
    give_back = give_back, expiry = expiry, form = form,
  }
end
