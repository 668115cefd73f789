-- The file that `tollgate nginx` has made of limits. It is read once, when nginx starts or reloads.

local address = require "tollgate.address"
local host = require "tollgate.host"
local identity = require "tollgate.identity"
local keys = require "tollgate.keys"
local question = require "tollgate.question"
local routes = require "tollgate.routes"

local concat = table.concat
local error, ipairs, open, pairs, tostring, type = error, ipairs, io.open, pairs, tostring, type

local _M = {}

-- The form of the file that this module knows.
local VERSION = 2

local ANEW = "; write it with `tollgate nginx` of the release that this module is from"

local function refuse(file, why)
  error("tollgate: " .. file .. ": " .. why, 0)
end

local function networks(texts)
  local list = {}
  for n, text in ipairs(texts) do list[n] = address.network(text) end
  return list
end

local function set(list)
  local found = {}
  for _, entry in ipairs(list) do found[entry] = true end
  return found
end

-- Identities stand in their canonical form, in digits.
local function identities(map)
  local found = {}
  for digits, value in pairs(map) do found[identity.text(identity.unhex(digits))] = value end
  return found
end

local function prepare_charges(tier)
  local members = {}
  for _, charge in ipairs(tier.charges) do
    charge.bytes = identity.unhex(charge.bytes)
    if not charge.starts then charge.asked = question.charge(charge.bytes) end
    if charge.mode == "enforce" and not charge.ban then members[#members + 1] = charge.member end
  end
  tier.charges.members = concat(members, ", ")
end

local function prepare(file, policy, ignore_case)
  for _, part in ipairs(policy.key) do
    part.read = keys.reader(part.by)
    if not part.read then refuse(file, "policy " .. policy.name .. ": no key is called " .. tostring(part.by)) end
  end
  policy.only = #policy.key == 1 and policy.key[1] or nil
  policy.denies = policy.on_failure == "deny" and not policy.shadow
  local patterns = policy.routes
  policy.routes = routes.set(patterns, ignore_case)
  policy.routes.all = patterns
  policy.has_routes = #patterns > 0
  policy.has_exempt_routes = #policy.exempt_routes > 0
  policy.exempt_routes = routes.set(policy.exempt_routes)
  policy.has_methods = #policy.methods > 0
  policy.methods = set(policy.methods)
  policy.exempt_methods = set(policy.exempt_methods)
  policy.exempt_networks = #policy.exempt_networks > 0 and networks(policy.exempt_networks) or nil
  policy.hosts = #policy.hosts > 0 and host.set(policy.hosts) or nil
  policy.exempt_keys = identities(policy.exempt_keys)
  policy.blocked_keys = identities(policy.blocked_keys)
  policy.tier_of = identities(policy.tier_of)
  prepare_charges(policy.own)
  for _, tier in pairs(policy.tiers) do prepare_charges(tier) end
end

-- The configuration in a file. An error says what is wrong with it, and nginx does not start.
function _M.read(file)
  -- Here, so that programs without nginx may load this module.
  local cjson = require "cjson.safe"
  local opened, why = open(file, "rb")
  if not opened then refuse(file, why) end
  local config
  config, why = cjson.decode(opened:read("*a"))
  opened:close()
  if type(config) ~= "table" then
    refuse(file, "it is not whole, or is not what `tollgate nginx` writes (" .. tostring(why or "no object") .. ")" .. ANEW)
  end
  local version = config.version
  if version ~= VERSION then
    refuse(file, "it has " .. (version == nil and "no version" or "version " .. tostring(version)) ..
      ", and this module reads version " .. VERSION .. ANEW)
  end
  for _, policy in ipairs(config.policies) do prepare(file, policy, config.ignore_path_case) end
  config.client.networks = networks(config.client.networks or {})
  return config
end

return _M
