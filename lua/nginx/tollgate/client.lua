-- The caller's address: the peer of the connection, or what proxies that are trusted say.

local address = require "tollgate.address"
local forwarded = require "tollgate.forwarded"
local text = require "tollgate.text"

local byte, sub = string.byte, string.sub
local trim, read, is_in, by_its_bits = text.trim, address.read, address.is_in, address.by_its_bits

local _M = {}

local COMMA = 44

-- No chain of trusted proxies is longer.
local MAX_HOPS = 64

-- Gives the entries of a line of X-Forwarded-For one by one, the last one first.
local function from_the_right(line)
  local left = #line
  return function()
    if not left then return nil end
    local at = left
    while at > 0 and byte(line, at) ~= COMMA do at = at - 1 end
    local entry = sub(line, at + 1, left)
    left = at > 0 and at - 1 or nil
    return entry
  end
end

-- From the peer back through the proxies: those in the trusted networks, or so many.
local function walk(client, lines, peer, entries_of)
  local networks, wanted = client.networks, client.hops
  if wanted == 0 or (not wanted and not is_in(networks, peer)) then return peer end
  local last, hops = peer, 0
  for n = #lines, 1, -1 do
    for entry in entries_of(lines[n]) do
      local found = entry and read(trim(entry))
      -- The caller wrote the entries left of one that is not an address.
      if not found then return last end
      hops = hops + 1
      if hops == wanted or (not wanted and not is_in(networks, found)) then return found end
      if not wanted and hops >= MAX_HOPS then return peer end
      last = found
    end
  end
  return peer
end

local READERS = {}

READERS["x-forwarded-for"] = function(client, lines, peer)
  return walk(client, lines, peer, from_the_right)
end

READERS.forwarded = function(client, lines, peer)
  return walk(client, lines, peer, forwarded.from_the_right)
end

READERS.header = function(client, lines, peer)
  if #lines ~= 1 or not is_in(client.networks, peer) then return peer end
  return read(trim(lines[1])) or peer
end

-- The caller of a request whose peer has this address, in bytes. `client` says which fields count.
function _M.resolve(client, peer, request)
  local found = peer
  if client.by ~= "peer" then found = READERS[client.by](client, request:lines(client.name), peer) end
  return by_its_bits(found)
end

return _M
