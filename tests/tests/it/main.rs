//! Tests across the crates, and those that need a program which only they use: Python, LuaJIT, nginx, Prometheus, valgrind.

mod alerting;
mod clients;
mod grpc_clients;
mod guarantees;
mod http_clients;
mod lua_gateway;
mod nginx;
mod promtool;
mod server_work;
