-- All other calls: every rule, every verb, many charges per request, a key in many requests. Reads each state once, runs all
-- requests one after the other, writes each changed state once.
-- The seventh is GCRA under which requests may wait, and the eleventh GCRA that warms up: see waiting.lua and warming.lua.
local RULES = {
  gcra, fixed_window, sliding_window, rolling_window, sliding_log, held, gcra, ban, interval_refill, calendar, gcra,
  once,
}
-- The bytes of a key's number and a receipt.
local RECEIPT = 21
local DECIDE, CREDIT, DEBIT, RESET, CALLER, TELL, RELEASE, GRANT = 0, 1, 2, 3, 4, 5, 6, 7

-- The rules that a charge has named. By number of key: true if the state was reset.
local rules, removed, admitted = {}, {}, 0

local function rule_of(algorithm)
  local rule = rules[algorithm]
  if not rule then
    rule = RULES[algorithm](algorithm)
    rules[algorithm] = rule
  end
  return rule
end

-- The other verbs: gives back, takes more, forgets, releases, or tells. The number of the key stands at byte `pos` of the run, and
-- behind it the receipt of a credit, or what is told. Returns the place of the next request, and false if an id keeps the charge.
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
      states[i], removed[i] = {}, true
      charge.rule.fresh(states[i], charge)
    elseif verb == DEBIT then
      charge.rule.debit(advance(i, charge), charge)
    elseif verb == RELEASE then
      charge.rule.release(advance(i, charge), times * charge.cost)
    elseif verb == TELL then
      charge.rule.tell(advance(i, charge), told)
    else
      return after, charge.rule.give_back(advance(i, charge), charge, at, full_us, full_rest)
    end
  end
  return after, not charge.beside
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
    local charge, algorithm = {}, nil
    algorithm, charge.mode, pos = unpack('<BB', run, pos)
    charge.rule = rule_of(algorithm)
    pos = charge.rule.parse(charge, run, pos)
    charges[c] = charge
    if charge.guards then
      charges.bans = charges.bans or {}
      charges.bans[#charges.bans + 1] = c
    elseif charge.beside then
      charges.ids = (charges.ids or 0) + 1
      charges.ask_ids, charges.count_ids = charge.rule.beside(keys, states, advance)
    end
  end
  if verb == GRANT then
    local grant = granting(state_of, advance, decide, now, byte, floor, max, min)
    local most, least = unpack('<dd', run, pos)
    for request = pos + 15, #run - width, width do
      for _ = 1, times do
        admitted = admitted + grant(charges, run, request, most, least)
      end
    end
  elseif verb ~= DECIDE then
    while pos <= #run do
      local goes_on = true
      for c = 1, width do
        if goes_on == false then
          pos = pos + RECEIPT
        else
          pos, goes_on = settle(verb, charges[c], run, pos, times)
        end
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
    write(i)
  elseif removed[i] then
    redis.call('DEL', KEYS[i])
  end
end

-- A server reads every byte of a text that a script makes, and states may be long: to pack two values at once would make one
-- more text of them all.
return seconds .. ' ' .. micros .. ' ' .. cmsgpack.pack(admitted) .. cmsgpack.pack(found)
