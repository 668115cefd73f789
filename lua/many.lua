-- The skeleton of a script for many requests of a shape: runs of equal charges, and the numbers of each request's keys behind them.
local found, missing = nil, {}
if #KEYS == 1 then
  found = { redis.pcall('GET', KEYS[1]) }
else
  found = redis.call('MGET', spread(KEYS))
  for i = 1, #KEYS do
    if not found[i] then
      missing[#missing + 1] = KEYS[i]
    end
  end
  -- MGET shows a value of another type as missing, and SET would destroy it.
  if #missing > 0 and redis.call('EXISTS', spread(missing)) > 0 then
    return ''
  end
end
-- By number of key: the state that a request has left, or the head of it with the rest as it was found; its expiry, and that of the
-- state as it was found.
local texts, heads, expires, expired, admitted = {}, {}, {}, {}, 0
for r = 1, #ARGV do
  local run, pos = ARGV[r], 4
  local times = byte(run)
  --@each
  pos = pos + 2
  --@parse
  if charge.is_outside then
    return ''
  end
  -- The number of the key whose state is at hand.
  local held$ = 0
  --@end
  --@granting
  local most, least
  most, least, pos = unpack('<dd', run, pos)
  --@each
  charge.unit = nil
  --@end
  --@end
  for request = pos, #run, WIDTH do
    local KEY_LIST = byte(run, request, request + WIDTH - 1)
    --@each
    if key$ ~= held$ and held$ > 0 or IS_HELD_ELSEWHERE then
      --@leave
      held$ = 0
    end
    --@end
    --@each
    if held$ == 0 then
      local text = texts[key$] or found[key$]
      if heads[key$] then
        text = text .. found[key$]:sub(#text + 1)
      end
      held$, state.changed = key$, false
      if text then
        --@read
        if not state.is_known then
          return ''
        end
        --@expiry
        expired[key$] = expired[key$] or state.expires
      else
        --@fresh
        state.is_known = true
      end
      state.is_found = text
    end
    --@end
    local open, is_banned, is_struck
    --@begin
    for _ = 1, times do
      open, is_banned, is_struck = true, false, false
      --@granting
      --@each
      --@grant
      --@end
      --@end
      --@decide
      if open then
        admitted = admitted + 1
      end
      if not open and not is_struck then
        -- The next one meets the same states.
        break
      end
    end
  end
  --@each
  --@leave
  --@end
end
for i = 1, #KEYS do
  local text = texts[i]
  if text and found[i] and expires[i] == expired[i] and (heads[i] or #text == #found[i]) then
    -- In place, which is cheaper, as the expiry stays.
    redis.call('SETRANGE', KEYS[i], '0', text)
  elseif text then
    if heads[i] then
      text = text .. found[i]:sub(#text + 1)
    end
    redis.call('SET', KEYS[i], text, 'PXAT', ('%d'):format(expires[i] / 1000 + 1))
  end
end
return seconds .. ' ' .. micros .. ' ' .. cmsgpack.pack(admitted) .. cmsgpack.pack(found)
