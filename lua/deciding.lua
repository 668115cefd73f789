-- Decides a request of any charges. It reads each state once, and brings it to now. The states are written elsewhere.
local ENFORCE, SHADOW, PROBE = 0, 1, 2

-- By number of key: the state now, and the last charge that touched it. By number of charge: the number of its key.
local states, last, keys = {}, {}, {}

-- GET fails on a value that is not a string, and its error is as long as no state; MGET would show the value as missing, and
-- SET would destroy it. An empty text is a foreign value, too.
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

-- The state of key number i; false for a foreign value.
local function state_of(i, charge)
  local state = states[i]
  if state == nil then
    local rule = charge.rule
    state = {}
    if found[i] then
      rule.read(state, found[i], charge, parts and parts[i])
      if not state.is_known then
        -- A foreign value, of any length, must not reach the callers.
        found[i], state = '', false
      elseif state.digest then
        -- The reply has the digest in place of up to 1,024 entries.
        found[i], last[i] = state.digest, charge
      else
        rule.expiry(state, charge)
        state.expired = state.expires
      end
    else
      rule.fresh(state, charge)
    end
    states[i] = state
  end
  return state
end

-- Brings a state to now. A decision also brings back a GCRA state that lies further ahead than its quota's debts may, as after
-- a clock stepped back. A receipt holds the quota of its day, which may be smaller.
local function advance(i, charge, is_decision)
  local state, rule = states[i], charge.rule
  if rule.advance then
    local changed = state.changed
    rule.advance(state, charge)
    -- An absent state stays absent until something is charged.
    state.changed = changed or (found[i] and state.changed)
  elseif is_decision then
    rule.rebase(state, charge)
  end
  last[i] = charge
  return state
end

-- Says whether charge number c is one of those that a ban guards.
local function guards(charge, c)
  return floor(charge.guards / 2 ^ (c - 1)) % 2 == 1
end

-- Asks the bans of a request. Says whether an enforced one is in force. One on trial spares its own charges on trial.
local function ask_bans(charges, bans)
  local is_banned = false
  for c = 1, #charges do
    charges[c].is_spared, charges[c].is_denied = false, false
  end
  for _, b in ipairs(bans) do
    local charge = charges[b]
    charge.rule.judge(advance(keys[b], charge, true), charge)
    charge.is_closed = not charge.passes
    is_banned = is_banned or (charge.is_closed and charge.mode == ENFORCE)
    local is_trial = charge.mode == SHADOW
    for c = 1, charge.is_closed and is_trial and #charges or 0 do
      charges[c].is_spared = charges[c].is_spared or (charges[c].mode == SHADOW and guards(charge, c))
    end
  end
  return is_banned
end

-- Says whether the request is a strike of this ban. A banned caller gets no further strike.
local function is_struck(charge, charges, is_banned, open)
  if is_banned and charge.mode == ENFORCE then
    return false
  end
  for c = 1, #charges do
    local other = charges[c]
    if guards(charge, c) then
      if other.is_denied then
        return true
      elseif other.mode == ENFORCE and not open and not is_banned and not other.is_free then
        other.rule.judge(states[keys[c]], other)
        if not other.passes then
          return true
        end
      end
    end
  end
  return false
end

local function punish(charges, bans, is_banned, open)
  local struck = {}
  for _, b in ipairs(bans) do
    struck[b] = is_struck(charges[b], charges, is_banned, open)
  end
  for _, b in ipairs(bans) do
    local charge, state = charges[b], states[keys[b]]
    if charge.mode == PROBE then
      -- A question.
    elseif charge.is_closed then
      charge.rule.knock(state, charge)
    elseif struck[b] then
      charge.cost, charge.asked = 1, charge.cost
      charge.rule.debit(state, charge)
      charge.cost = charge.asked
    end
  end
end

-- Writes the state of key number i.
local function write(i)
  local state, charge, key = states[i], last[i], KEYS[i]
  local rule = charge.rule
  if rule.write then
    return rule.write(key, state)
  end
  rule.form(state, charge)
  rule.expiry(state, charge)
  local text = state.text
  if text == '' then
    redis.call('DEL', key)
  elseif state.expires == state.expired and #text == #found[i] then
    -- In place, which is cheaper, as the expiry stays.
    redis.call('SETRANGE', key, '0', text)
  else
    -- In µs, rounded up to ms. A window or log ends a period after it stops counting, because a clock that steps back by less than
    -- a period may come back to it.
    redis.call('SET', key, text, 'PXAT', ('%d'):format(state.expires / 1000 + 1))
  end
end

-- One request: charges, and the numbers of their keys from byte `pos` of the run on. All enforced charges are taken, or none;
-- then each shadow on its own; the probes take nothing. They stand in this order.
local function decide(charges, run, pos)
  local width, open, is_barred = #charges, true, false
  -- Bounds of a calendar from a process whose clock is days off hold no window.
  for c = 1, width do
    local i = byte(run, pos + c)
    keys[c] = i
    local state = states[i] or state_of(i, charges[c])
    is_barred = is_barred or not state or state.is_barred or charges[c].is_outside
  end
  if is_barred then
    return 0
  end
  local ids, bans, is_banned = charges.ids, charges.bans, false
  if ids then
    charges.ask_ids(charges)
    width = width - ids
  end
  if bans then
    is_banned = ask_bans(charges, bans)
  end
  for c = 1, width do
    local charge = charges[c]
    if charge.mode == ENFORCE then
      charge.rule.judge(advance(keys[c], charge, true), charge)
      open = (charge.passes or charge.is_free) and open
    end
  end
  for c = 1, width do
    local charge, i = charges[c], keys[c]
    if charge.mode == ENFORCE then
      if open and charge.cost > 0 and not charge.is_free then
        charge.rule.take(states[i], charge)
      end
    elseif not charge.is_spared then
      local state = advance(i, charge, true)
      if charge.mode == SHADOW and charge.cost > 0 and not charge.is_free then
        charge.rule.judge(state, charge)
        if charge.passes then
          charge.rule.take(state, charge)
        else
          charge.is_denied = true
        end
      end
    end
  end
  if bans then
    for c = 1, width do
      if charges[c].is_spared then
        advance(keys[c], charges[c], true)
      end
    end
    punish(charges, bans, is_banned, open)
  end
  if ids then
    charges.count_ids(charges, open)
  end
  return open and 1 or 0
end
