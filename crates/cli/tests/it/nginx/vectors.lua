-- Answers each line by the modules of nginx: an identity in hexadecimals, by its text; a number of charges and a reply, by what the
-- module has read. `vectors.rs` knows what is right.

local identity, reply = require "tollgate.identity", require "tollgate.reply"

for line in io.lines() do
  local charges, text = line:match("^(%d+) (.+)$")
  if not charges then
    print(identity.text(identity.canonical { identity.unhex(line) }))
  else
    local read = reply.read(text, tonumber(charges))
    local numbers = { read[reply.OUTCOME], read[reply.CHARGE], read[reply.RETRY_AFTER] }
    for charge = 1, tonumber(charges) do
      for _, number in ipairs { reply.of(read, charge) } do numbers[#numbers + 1] = number end
    end
    for n, number in ipairs(numbers) do numbers[n] = ("%d"):format(number) end
    print(table.concat(numbers, " "))
  end
end
