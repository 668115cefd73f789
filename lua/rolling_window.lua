-- A count for each of the last k parts of the period. Their sum is held to the limit.
--
--   state   tag B (250), newest d, k × count d: each at its bucket's number modulo k, `newest` is the highest number
--   charge  cost d, limit d, period d, buckets d
local function rolling_window()
  local TAG = 250

  local function quota(run, pos)
    local cost, limit, period, buckets, after = unpack('<dddd', run, pos)
    local width = period / buckets
    return { limit = limit, buckets = buckets, width = width, bucket = floor(now / width) }, cost, after
  end

  local function fresh(quota)
    local state = { newest = 0, sum = 0, buckets = quota.buckets }
    for i = 0, quota.buckets - 1 do
      state[i] = 0
    end
    return state
  end

  local function read(found, quota)
    local buckets = quota.buckets
    if #found ~= 9 + 8 * buckets then
      return false
    end
    local tag, newest = unpack('<Bd', found)
    local state = { unpack('<' .. ('d'):rep(buckets), found, 10) }
    -- Buckets are numbered from 0; the last value is the start of the next one.
    local sum = 0
    for i = 1, buckets do
      local count = state[i]
      if not is_whole(count) then
        return false
      end
      state[i - 1], sum = count, sum + count
    end
    state.newest, state.sum, state.buckets = newest, sum, buckets
    return tag == TAG and is_whole(newest) and state
  end

  local function advance(state, quota)
    local newest, bucket, buckets = state.newest, quota.bucket, quota.buckets
    if newest >= bucket and newest <= bucket + buckets then
      -- This holds after a step back of less than a period, too: the newest bucket stays until it is over.
      return
    elseif newest < bucket then
      for passed = bucket - min(bucket - newest, buckets) + 1, bucket do
        local i = passed % buckets
        state.sum, state[i] = state.sum - state[i], 0
      end
    else
      -- The clock stepped back: the counts come along, the newest to now's bucket.
      local counts = {}
      for age = 0, buckets - 1 do
        local i = (newest - age) % buckets
        counts[age], state[i] = state[i], 0
      end
      for age = 0, buckets - 1 do
        state[(bucket - age) % buckets] = counts[age]
      end
    end
    state.newest, state.changed = bucket, true
  end

  local function passes(state, charge)
    return charge.cost == 0 or state.sum + charge.cost <= charge.quota.limit
  end

  local function add(state, bucket, count)
    local i = bucket % state.buckets
    state[i], state.sum, state.changed = state[i] + count, state.sum + count, true
  end

  local function take(state, charge)
    add(state, state.newest, charge.cost)
  end

  local function debit(state, charge)
    add(state, state.newest, counted_up(state.sum, charge) - state.sum)
  end

  local function give_back(state, charge, at)
    local quota = charge.quota
    local bucket = floor(at / quota.width)
    if at <= now and bucket + quota.buckets > state.newest then
      add(state, bucket, -min(charge.cost, state[bucket % quota.buckets]))
    end
  end

  local function write(key, state, quota)
    local value = pack('<Bd' .. ('d'):rep(state.buckets), TAG, state.newest, spread(state, 0, state.buckets - 1))
    set_until(key, value, (state.newest + 2 * state.buckets) * quota.width)
  end

  return {
    quota = quota,
    fresh = fresh,
    read = read,
    advance = advance,
    passes = passes,
    take = take,
    debit = debit,
    give_back = give_back,
    write = write,
  }
end
