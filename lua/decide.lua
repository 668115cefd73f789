-- The decide form: one request, told in full to a program that has no rule of its own. The contract is in README.md.
-- The sixth, the seventh and the twelfth algorithm need a program that comes back.
local RULES = {
  gcra, fixed_window, sliding_window, rolling_window, sliding_log, false, false, ban, interval_refill, calendar, gcra,
}
local STANDING = {
  gcra_stands, fixed_window_stands, sliding_window_stands, rolling_window_stands, sliding_log_stands, false, false, ban_stands,
  interval_refill_stands, calendar_stands, gcra_stands,
}
local IMPOSED = 2
local ADMITTED, DENIED, FAILED = 1, 0, 2
local PASSES, REFUSED, FOREIGN, OUTSIDE, UNDECIDED = 1, 0, 2, 3, 4

-- A ban names the charges that it guards by their distance before it, so that its words stay as they are wherever they stand.
local function guarded(back, c)
  local guards = 0
  for distance = 1, c - 1 do
    if floor(back / 2 ^ (distance - 1)) % 2 == 1 then
      guards = guards + 2 ^ (c - distance - 1)
    end
  end
  return guards
end

local rules, charges, numbers = {}, {}, {}
for c = 1, #ARGV do
  local words = ARGV[c]
  local algorithm, mode = byte(words, 1, 2)
  rules[algorithm] = rules[algorithm] or RULES[algorithm](algorithm)
  local charge = { rule = rules[algorithm], mode = mode, stands = STANDING[algorithm] }
  local after = charge.rule.parse(charge, words, 3)
  if charge.guards then
    if charge.cost > 0 or charge.onset == IMPOSED then
      return redis.error_reply('ERR decide form: charge ' .. c .. ' is a ban that strikes by itself')
    end
    charge.guards = guarded(charge.guards, c)
    charges.bans = charges.bans or {}
    charges.bans[#charges.bans + 1] = c
  elseif charge.us then
    charge.unit, charge.unit_rest = unpack('<dd', words, after)
  end
  charges[c], numbers[c] = charge, c
end

local open = decide(charges, string.char(spread(numbers)), 0) == 1

local failed, told = 0, {}
for c = #charges, 1, -1 do
  local verdict = UNDECIDED
  if not state_of(c, charges[c]) then
    verdict = FOREIGN
  elseif charges[c].is_outside then
    verdict = OUTSIDE
  end
  if verdict ~= UNDECIDED then
    failed = c
  end
  told[c] = verdict .. ' 0 0 0'
end
if failed > 0 then
  return seconds .. ' ' .. micros .. ' ' .. FAILED .. ' ' .. failed .. ' 0 ' .. table.concat(told, ' ')
end

-- The charge that says most: its number, the wait if it is denied, and what is left of how much.
local tightest, tightest_wait, tightest_left, tightest_of, longest = 0, 0, 0, 1, 0
for c, charge in ipairs(charges) do
  local mode, state = charge.mode, states[c]
  -- A charge that was taken has passed, and is no longer asked for.
  local is_taken = mode == ENFORCE and open or mode == SHADOW and not charge.is_denied and not charge.is_spared
  local remaining, reset, wait = charge.stands(state, charge, is_taken and 0 or charge.cost)
  told[c] = ('%d %d %d %d'):format(wait == 0 and PASSES or REFUSED, remaining, reset, wait)
  if wait == NEVER then
    wait = math.huge
  end
  if mode == ENFORCE then
    longest = max(longest, wait)
  end
  if mode == ENFORCE and not charge.guards then
    local of = charge.burst or charge.limit or units_within(charge, charge.full, charge.full_rest)
    if tightest == 0 or wait > tightest_wait
      or (wait == 0 and tightest_wait == 0 and is_product_above(tightest_left, of, remaining, tightest_of)) then
      tightest, tightest_wait, tightest_left, tightest_of = c, wait, remaining, of
    end
  end
end

for c, state in ipairs(states) do
  if state.changed then
    write(c)
  end
end

local after = 0
if not open then
  after = longest == math.huge and NEVER or floor((longest + 999999) / 1000000)
end
return seconds .. ' ' .. micros .. (' %d %d %d '):format(open and ADMITTED or DENIED, tightest, after) .. table.concat(told, ' ')
