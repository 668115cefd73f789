-- The skeleton of a script for one request of a shape. Each charge has a key of its own, in their order.
local run, pos, open, is_banned, is_struck = ARGV[1], 4, true, false, false
--@each
pos = pos + 2
--@parse
if charge.is_outside then
  return ''
end
--@end
--@granting
local most, least = unpack('<dd', run, pos)
--@end
--@each
local text$ = redis.pcall('GET', KEYS[$])
if text$ then
  local text = text$
  --@read
  if not state.is_known then
    return ''
  end
  --@expiry
  state.expired = state.expires
else
  --@fresh
  state.is_known = true
end
state.is_found = text$
--@end
--@begin
--@granting
--@each
--@grant
--@end
--@end
--@decide
--@each
if state.changed then
  --@form
  --@expiry
  local text = state.text
  if text$ and state.expires == state.expired and (state.is_head or #text == #text$) then
    -- In place, which is cheaper, as the expiry stays.
    redis.call('SETRANGE', KEYS[$], '0', text)
  else
    if state.is_head then
      text = text .. text$:sub(#text + 1)
    end
    redis.call('SET', KEYS[$], text, 'PXAT', ('%d'):format(state.expires / 1000 + 1))
  end
end
--@end
-- The numbers and texts of MessagePack, of which a usual state has its length.
return seconds .. ' ' .. micros .. (open and ' \1' or ' \0') .. LIST
--@each
  .. (not text$ and '\194' or #text$ == USUAL and HEADER .. text$ or cmsgpack.pack(text$))
--@end
