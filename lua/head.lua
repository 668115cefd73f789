-- The clock, and the functions that every path calls: reading a global costs four comparisons, so it is done once. The contract
-- is in README.md.
local redis, struct = redis, struct
local clock = redis.call('TIME')
local seconds, micros = clock[1], clock[2]
local now = seconds * 1000000 + micros
