-- For each reader of what callers write: its name, and how much longer it takes for four times the text. The text is the one that
-- was the dearest of its length.

local nothing = function() end
ngx = {
  var = { request = "GET / HTTP/1.1" },
  req = { read_body = nothing, get_body_data = nothing, get_body_file = nothing, http_version = function() return 1.1 end },
}

local body, cookie, host, json = require "tollgate.body", require "tollgate.cookie", require "tollgate.host", require "tollgate.json"
local text = require "tollgate.text"

-- A request with these header fields.
local function request(fields)
  return { lines = function(_, name) return { fields[name] } end }
end

local hosts = host.set { "api.example.com" }

local READERS = {
  { "content type", " ", function(long) return body.kind(request { ["content-type"] = "a" .. long .. "b" }) end },
  { "cookie", '"', function(long) return cookie.value({ "sid=a" .. long .. "b" }, "sid") end },
  { "forwarded host", ".", function(long) return host.is_any(request { ["x-forwarded-host"] = "a" .. long .. "b" }, hosts) end },
  { "authority", "a", function(long)
    ngx.var.request = "GET http://" .. long .. "@/ HTTP/1.1"
    return host.of(request {})
  end },
  { "groups of an address", "1:", text.one_form },
  { "zeros of a port", "0", function(long) return text.one_form("1:" .. long .. "x") end },
  { "JSON", "\\n", function(long) return json.field('{"a":"' .. long .. '"}', { "a" }) end },
}

local function least_time(read, long)
  local least = math.huge
  for _ = 1, 7 do
    local begun = os.clock()
    for _ = 1, 5 do read(long) end
    least = math.min(least, os.clock() - begun)
  end
  return least
end

for _, reader in ipairs(READERS) do
  local name, sign, read = reader[1], reader[2], reader[3]
  local short = least_time(read, sign:rep(1000))
  print(name .. "\t" .. least_time(read, sign:rep(4000)) / short)
end
