-- The caller's address: the peer of the connection, or what proxies that are trusted say.

local address = require "tollgate.address"
local text = require "tollgate.text"

local gmatch = string.gmatch
local trim, read, is_in, by_its_bits = text.trim, address.read, address.is_in, address.by_its_bits

local _M = {}

-- No chain of trusted proxies is longer.
local MAX_HOPS = 64

local function forwarded_for(lines, peer, networks)
  if not is_in(networks, peer) then return peer end
  local last, hops = peer, 0
  for n = #lines, 1, -1 do
    local entries = {}
    for entry in gmatch(lines[n] .. ",", "([^,]*),") do entries[#entries + 1] = entry end
    for m = #entries, 1, -1 do
      local found = read(trim(entries[m]))
      -- The caller wrote the entries left of one that is not an address.
      if not found then return last end
      if not is_in(networks, found) then return found end
      hops = hops + 1
      if hops >= MAX_HOPS then return peer end
      last = found
    end
  end
  return peer
end

local function one_header(lines, peer, networks)
  if #lines ~= 1 or not is_in(networks, peer) then return peer end
  return read(trim(lines[1])) or peer
end

local READERS = { ["x-forwarded-for"] = forwarded_for, header = one_header }

-- The caller of a request whose peer has this address, in bytes. `client` says which fields count.
function _M.resolve(client, peer, request)
  local found = peer
  if client.by ~= "peer" then found = READERS[client.by](request:lines(client.name), peer, client.networks) end
  return by_its_bits(found)
end

return _M
