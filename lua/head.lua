-- The clock, and names that all paths use. The contract is in README.md.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local KEYS, ARGV, spread, unpack = KEYS, ARGV, unpack, struct.unpack

