-- From a request to its charges: the policies that cover it, the identity of each, and its tier.

local address = require "tollgate.address"
local host = require "tollgate.host"
local identity = require "tollgate.identity"
local keys = require "tollgate.keys"
local path = require "tollgate.path"
local problem = require "tollgate.problem"
local request = require "tollgate.request"
local routes = require "tollgate.routes"
local told = require "tollgate.told"

local is_in = address.is_in
local find = string.find
local ngx = ngx
local var = ngx.var
local is_internal = ngx.req.is_internal

local _M = {}

local NO_CHARGES = {}

-- True if the policy's conditions hold. GET includes HEAD.
local function covers(policy, request, config)
  if policy.has_routes and not routes.any_covers(policy.routes, request.form, request.others) then return false end
  if policy.has_exempt_routes and routes.exempts(policy.exempt_routes, request.raw, request.others) then return false end
  if policy.hosts and not host.is_any(request, policy.hosts) then return false end
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

-- The identity as it stands in names, and at last true if it or a part of it is missing; or nothing, if the policy lets the request
-- pass; or nothing, the status and the body.
local function payer(policy, request, config)
  local only = policy.only
  local parts, missing, why, shared
  if only then
    parts, why = only.read(only, request, config, policy)
    if parts then return identity.text(identity.compact(parts)) end
    missing = only
  else
    parts, missing, why, shared = keys.find(policy, request, config)
    if parts then return identity.text(identity.canonical(parts)) end
  end
  local rule = policy.on_missing
  -- An identity that is there but ambiguous never passes: the service may read it.
  if rule == "share" or (rule == "pass" and why) then
    return shared and identity.text(identity.canonical(shared)) or "none", nil, nil, true
  end
  if rule == "pass" or policy.shadow then return nil end
  return nil, 403, problem.unidentified(missing.what, why)
end

-- The reason why services read the request in different ways; nothing if they do not.
local function flaw(request, config)
  -- No client sends one. Some services cut it off, and others take it for a part of the path or the query.
  if find(var.request_uri, "#", 1, true) then
    return "The target has a fragment, and services read such targets in different ways."
  end
  if not request.is_plain and not config.allow_ambiguous_paths then
    local what = path.ambiguity(request.raw)
    if what then return "The path has " .. what .. ", and services read such paths in different ways." end
  end
  local headers = config.key_headers
  for n = 1, #headers do
    if request:is_doubled(headers[n]) then return "The field " .. headers[n] .. " is a key, and stands twice." end
  end
end

-- All charges of two lists.
local function joined(some, more)
  local all = {}
  for n = 1, #some do all[n] = some[n] end
  for n = 1, #more do all[#some + n] = more[n] end
  return all
end

-- The charges without the ban behind them. Callers who lack their identity or a part of it have none: one would keep out all others.
local function without_ban(charges)
  local last = charges[#charges]
  if not last or not last.ban then return charges end
  local kept = { members = charges.members }
  for n = 1, #charges - 1 do kept[n] = charges[n] end
  return kept
end

-- The charges of a request and the names of their states; or nothing, the status and the body of a refusal. There are no charges
-- if no policy asks for any. The failure rule is true if one of the policies refuses requests that cannot be decided.
local function of(request, config)
  local charges, names, count, denies = nil, nil, 0, false
  local policies = config.policies
  for n = 1, #policies do
    local policy = policies[n]
    if covers(policy, request, config) then
      local who, status, body, is_incomplete = payer(policy, request, config)
      if status then return nil, status, body end
      if who and not policy.exempt_keys[who] then
        local blocked = policy.blocked_keys[who]
        if blocked and not policy.shadow then return nil, blocked, problem.BLOCKED[blocked] end
        local tier = policy.tiers[policy.tier_of[who] or false] or policy.own
        -- A limit of 0.
        if tier.none and not policy.shadow then return nil, 403, problem.BLOCKED[403] end
        local more = is_incomplete and without_ban(tier.charges) or tier.charges
        local width = #more
        if width > 0 then
          if count == 0 then
            charges, names = more, { more[1].head .. who }
          else
            charges = joined(charges, more)
            names[count + 1] = more[1].head .. who
          end
          for m = 2, width do names[count + m] = more[m].head .. who end
          count = count + width
          denies = denies or policy.denies
        end
      end
    end
  end
  return charges or NO_CHARGES, names, denies
end

-- The charges of the request that nginx is about to pass on, as `of` tells them.
function _M.of_request(config)
  -- The question about the main request, and about one that was redirected within nginx, has been asked.
  if ngx.is_subrequest or (is_internal() and told.is_decided()) then return NO_CHARGES end
  local asked = request.new(config.ignore_path_case)
  if not asked then return nil, 400, problem.ambiguous("The target is not a path.") end
  local why = flaw(asked, config)
  if why then return nil, 400, problem.ambiguous(why) end
  return of(asked, config)
end

return _M
