-- The parts of both skeletons. Enforced budgets are all taken or none. A ban that may guard them stands behind them, and last an id
-- that may stand beside them.
--# begin
--@ban
if charge.cost > 0 or charge.onset == 2 then
  return ''
end
--@end
--@each
state.was_changed = state.changed
--@advance
if not state.is_known then
  return ''
end
-- An absent state stays absent until something is charged.
state.changed = state.was_changed or state.is_found and state.changed
--@end
--@id
-- Its life is over, or the clock has stepped back.
if state.changed and not state.was_changed then
  return ''
end
--@end
--# grant
-- As much as there is: see grant.lua.
local low, high, tries, times = 0, most + 1, 0, most
--@ask
--@about
while high - low > 1 do
  --@try
  times = charge.times
  if times > low and times < high then
    --@ask
    --@judge
    if charge.passes then
      low = times
    else
      high = times
    end
  end
  tries = tries + 1
end
times = min(most, max(low, least))
--@ask
--# decide
--@id
--@recall
--@end
--@ban
--@judge
is_banned, open = not charge.passes, charge.passes
--@end
--@budgets
--@judge
--@with_id
charge.is_free = id.is_replay and id.beside % 2 ^ $ >= 2 ^ ($ - 1)
charge.passes = charge.passes or charge.is_free
--@end
open = open and charge.passes
--@end
if open then
  --@budgets
  if charge.cost > 0 and not charge.is_free then
    --@take
  end
  --@end
  --@id
  if charge.is_replay then
    --@replay
  elseif charge.cost > 0 then
    --@take
  end
  --@end
end
--@ban
if is_banned then
  --@knock
elseif not open then
  local strikes = 1
  --@budgets
  is_struck = is_struck or not charge.passes and ban.guards % 2 ^ $ >= 2 ^ ($ - 1)
  --@end
  if is_struck then
    --@strike
  end
end
--@end
--# leave
if state.changed then
  --@form
  --@expiry
  texts[held$], heads[held$], expires[held$], state.changed = state.text, state.is_head, state.expires, false
end
