-- The clock, and what every path calls: to read a global is as dear as four comparisons, so it is done once. The contract
-- is in README.md.
local redis, struct = redis, struct
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
