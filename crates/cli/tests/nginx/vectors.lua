-- Answers each line by the modules of nginx: an identity in hexadecimals, by its text; a number of charges and a reply, by what the
-- module has read. `vectors.rs` knows what is right.

local identity, reply = require "tollgate.identity", require "tollgate.reply"

for line in io.lines() do
  local charges, text = line:match("^(%d+) (.+)$")
  if not charges then
    print(identity.text(identity.canonical { identity.unhex(line) }))
  else
    local decision = reply.read(text, tonumber(charges))
    local numbers = { decision.outcome, decision.charge, decision.retry_after }
    for _, charge in ipairs(decision) do
      assert(charge.passes == (charge.verdict == 1))
      for _, name in ipairs { "verdict", "remaining", "reset", "wait" } do numbers[#numbers + 1] = charge[name] end
    end
    for n, number in ipairs(numbers) do numbers[n] = ("%d"):format(number) end
    print(table.concat(numbers, " "))
  end
end
