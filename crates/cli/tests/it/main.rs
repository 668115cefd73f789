//! The program `tollgate`, run as its users do: on logs, configurations and real servers, and before a real nginx.

mod charts;
mod doctor;
mod explain_redis;
mod fleet;
mod install;
mod nginx;
mod program;
mod replay;
mod replay_exact;
mod runbook;
mod serve;
mod suggest_truth;
mod support;
