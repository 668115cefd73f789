-- The figures of a budget that was brought to now, as the decide form tells them: the largest cost that would pass, the time until it is full
-- again, and the time until a cost passes. The wait is 0 if it passes now, and -1 if it never does.
local NEVER = -1

-- The product of two numbers below 2^46 as two limbs, each of which a double holds exactly: high × 2^48 + low.
local function product(a, b)
  local LIMB = 2 ^ 24
  local a_low, b_low = a % LIMB, b % LIMB
  local a_high, b_high = (a - a_low) / LIMB, (b - b_low) / LIMB
  local low = a_low * b_low
  local middle = a_high * b_low + a_low * b_high + floor(low / LIMB)
  return a_high * b_high + floor(middle / LIMB), middle % LIMB * LIMB + low % LIMB
end

-- Says whether a × b is more than c × d.
local function is_product_above(a, b, c, d)
  local high, low = product(a, b)
  local other_high, other_low = product(c, d)
  return high > other_high or (high == other_high and low > other_low)
end

-- A bit more than the error of a quotient of doubles, so that its whole part is right or one too large.
local ABOVE = 1 + 2 ^ -50

-- The largest whole number n for which n × by is at most a × b.
local function quotient(a, b, by)
  local whole = floor(a / by * b * ABOVE)
  return is_product_above(whole, by, a, b) and whole - 1 or whole
end

-- The units that drain within (us, rest).
local function units_within(quota, us, rest)
  local denominator = quota.denominator
  local whole = floor((us + rest / denominator) / (quota.unit + quota.unit_rest / denominator) * ABOVE)
  local rests = whole * quota.unit_rest
  local over = rests % denominator
  local drain = whole * quota.unit + (rests - over) / denominator
  return (drain > us or (drain == us and over > rest)) and whole - 1 or whole
end

local function gcra_stands(state, quota, cost)
  local at, rest, denominator = state.at, state.rest, quota.denominator
  if rest > 0 and (state.mark ~= quota.mark or rest >= denominator) then
    at, rest = at + 1, 0
  end
  if at < now then
    at, rest = now, 0
  end
  local room, room_rest = quota.latest - at, quota.full_rest - rest
  if room_rest < 0 then
    room, room_rest = room - 1, room_rest + denominator
  end
  local wait = 0
  if cost > 0 then
    if quota.us > quota.full or (quota.us == quota.full and quota.rest > quota.full_rest) then
      wait = NEVER
    else
      wait = max(quota.us - room + (quota.rest > room_rest and 1 or 0), 0)
    end
  end
  return room < 0 and 0 or units_within(quota, room, room_rest), at - now + (rest > 0 and 1 or 0), wait
end

-- A count that is over after the time `left`.
local function count_stands(count, limit, left, cost)
  local wait = 0
  if cost > limit then
    wait = NEVER
  elseif cost > 0 and count + cost > limit then
    wait = left
  end
  return max(limit - count, 0), count > 0 and left or 0, wait
end

local function fixed_window_stands(state, quota, cost)
  return count_stands(state.count, quota.limit, state.window * quota.period + quota.offset - now, cost)
end

local function calendar_stands(state, quota, cost)
  return count_stands(state.count, quota.limit, state.ends - now, cost)
end

local function sliding_window_stands(state, quota, cost)
  local previous, current, limit, period = state.previous, state.current, quota.limit, quota.period
  -- The time, or the start of the window if the clock stepped back to before it.
  local shown = max(now, state.window * period)
  local left, ahead = period - shown % period, shown - now
  local faded = quotient(previous, left, period)
  if is_product_above(previous, left, faded, period) then
    faded = faded + 1
  end
  local wait, room = 0, limit - cost - current
  if cost > limit then
    wait = NEVER
  elseif cost > 0 and room < 0 then
    -- In the next window this one's count fades.
    wait = ahead + left + period - quotient(limit - cost, period, current)
  elseif cost > 0 and is_product_above(previous, left, room, period) then
    wait = ahead + left - quotient(room, period, previous)
  end
  local reset = 0
  if current > 0 then
    reset = ahead + left + period
  elseif previous > 0 then
    reset = ahead + left
  end
  return max(limit - current - faded, 0), reset, wait
end

local function rolling_window_stands(state, quota, cost)
  local newest, buckets, limit, sum = state.newest, quota.buckets, quota.limit, state.sum
  local function expires_after(age)
    return (newest - age + buckets) * quota.width - now
  end
  local reset, wait, freed = 0, 0, sum
  if cost > limit then
    wait = NEVER
  end
  -- The oldest first. The last one that counts is the newest.
  for age = buckets - 1, 0, -1 do
    local count = state.counts[(newest - age) % buckets + 1]
    if count > 0 then
      reset = expires_after(age)
      if cost > 0 and freed + cost > limit and freed - count + cost <= limit then
        wait = reset
      end
      freed = freed - count
    end
  end
  return max(limit - sum, 0), reset, wait
end

local function sliding_log_stands(state, quota, cost)
  local HEAD, ENTRY, WRAP = 5, 12, 2 ^ 32
  local first, length, limit = state.first, state.length, quota.limit
  local function entry(i)
    return unpack('<dI4', state.log, HEAD + 1 + (i - 1) * ENTRY)
  end
  local before = state.before
  if first > 1 then
    local _, total = entry(first - 1)
    before = total
  end
  local sum, wait = (state.total - before) % WRAP, 0
  if cost > limit then
    wait = NEVER
  elseif cost > 0 and sum + cost > limit then
    -- The first entry with which enough expires.
    local low, high = first, length
    while low < high do
      local middle = floor((low + high) / 2)
      local _, total = entry(middle)
      if sum - (total - before) % WRAP + cost <= limit then
        high = middle
      else
        low = middle + 1
      end
    end
    wait = entry(low) + quota.period - now
  end
  return max(limit - sum, 0), first <= length and state.newest + quota.period - now or 0, wait
end

local function interval_refill_stands(state, quota, cost)
  local ahead, count, limit, burst = state.ahead, state.count, quota.limit, quota.burst
  local part, wait = min(count, limit), 0
  local function until_refill(number)
    return (state.window + number) * quota.period + quota.offset - now
  end
  if cost > burst then
    wait = NEVER
  elseif cost > 0 then
    local room = burst - cost - part
    -- If less than the part has room, all that is owed must have come.
    local refills = room < 0 and ahead + 1 or ahead - floor(room / limit)
    if refills > 0 then
      wait = until_refill(refills - 1)
    end
  end
  return max(burst - ahead * limit - part, 0), count > 0 and until_refill(ahead) or 0, wait
end

-- A ban has strikes to spare instead of units.
local function ban_stands(state, quota)
  if now < state.ends then
    return 0, state.ends - now, state.ends - now
  end
  local left, reset = quota.strikes, 0
  for _, at in ipairs(state.strikes) do
    if at + quota.within > now then
      left, reset = left - 1, at + quota.within - now
    end
  end
  return max(left, 0), reset, 0
end
