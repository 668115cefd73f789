-- The parts of both skeletons. Enforced budgets are all taken or none; a ban that may guard them stands behind them.
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
--# decide
--@ban
--@judge
is_banned, open = not charge.passes, charge.passes
--@end
--@budgets
--@judge
open = open and charge.passes
--@end
if open then
  --@budgets
  if charge.cost > 0 then
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
