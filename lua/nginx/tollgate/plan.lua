-- From a request to its charges: the policies that cover it, the identity of each, and its tier.

local address = require "tollgate.address"
local identity = require "tollgate.identity"
local keys = require "tollgate.keys"
local problem = require "tollgate.problem"
local routes = require "tollgate.routes"

local is_in = address.is_in

local _M = {}

-- True if the policy's conditions hold. GET includes HEAD.
local function covers(policy, request, config)
  if policy.has_routes and not routes.any_covers(policy.routes, request.form, request.tidied) then return false end
  -- Other forms of a path widen what is covered, and never what is exempt.
  if policy.has_exempt_routes and routes.any_covers(policy.exempt_routes, request.raw) then return false end
  local method = request.method
  local other = method == "HEAD" and "GET" or method
  local methods, exempt = policy.methods, policy.exempt_methods
  if policy.has_methods and not methods[method] and not methods[other] then return false end
  if exempt[method] or exempt[other] then return false end
  if policy.exempt_networks then
    local caller = request:address(config.client)
    if caller and is_in(policy.exempt_networks, caller) then return false end
  end
  return true
end

-- The identity as it stands in names; or nothing, if the policy lets the request pass; or nothing, the status and the body.
local function payer(policy, request, config)
  local parts, missing, why = keys.find(policy, request, config)
  if parts then return identity.text(identity.canonical(parts)) end
  local rule = policy.on_missing
  -- An identity that is there but ambiguous never passes: the service may read it.
  if rule == "share" or (rule == "pass" and why) then return "none" end
  if rule == "pass" or policy.shadow then return nil end
  return nil, 403, problem.unidentified(missing.what, why)
end

-- The charges of a request and the names of their states; or nothing, the status and the body of a refusal. The failure rule is
-- true if one of the policies refuses requests that cannot be decided.
function _M.of(request, config)
  local charges, names, words, count, denies = {}, {}, {}, 0, false
  local policies = config.policies
  for n = 1, #policies do
    local policy = policies[n]
    if covers(policy, request, config) then
      local who, status, body = payer(policy, request, config)
      if status then return nil, status, body end
      if who and not policy.exempt_keys[who] then
        local blocked = policy.blocked_keys[who]
        if blocked and not policy.shadow then return nil, blocked, problem.BLOCKED[blocked] end
        local tier = policy.tiers[policy.tier_of[who] or false] or policy.own
        -- A limit of 0.
        if tier.none and not policy.shadow then return nil, 403, problem.BLOCKED[403] end
        local of_tier = tier.charges
        for m = 1, #of_tier do
          local charge = of_tier[m]
          count = count + 1
          charges[count], names[count], words[count] = charge, charge.head .. who, charge.bytes
        end
        denies = denies or (#of_tier > 0 and not policy.shadow and policy.on_failure == "deny")
      end
    end
  end
  return charges, names, words, denies
end

return _M
