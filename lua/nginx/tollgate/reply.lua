-- The script's reply: see "The decide form" in lua/README.md.

local gmatch, tonumber, type = string.gmatch, tonumber, type

local _M = {}

-- The decision about so many charges; nothing if the text is not a reply about them.
function _M.read(text, charges)
  if type(text) ~= "string" then return nil end
  local numbers, count = {}, 0
  for number in gmatch(text, "%-?%d+") do
    count = count + 1
    numbers[count] = tonumber(number)
  end
  if count ~= 5 + 4 * charges then return nil end
  local decision = { outcome = numbers[3], charge = numbers[4], retry_after = numbers[5] }
  for n = 1, charges do
    local at = 1 + 4 * n
    decision[n] = {
      passes = numbers[at + 1] == 1, verdict = numbers[at + 1], remaining = numbers[at + 2], reset = numbers[at + 3],
      wait = numbers[at + 4],
    }
  end
  return decision
end

return _M
