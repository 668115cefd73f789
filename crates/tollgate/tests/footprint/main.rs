//! Memory that stays bounded, counted by an allocator over all threads: each test in a process of its own.

#[path = "../it/common/mod.rs"]
mod common;
mod leases;
mod messages;
mod quota_lookups;
mod replacement;

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;
