//! Every verdict against a second opinion: the six algorithms once more, naively, in exact rational numbers, and what is
//! held in whole ones.
//!
//! `TOLLGATE_EFFORT=100 cargo test` tries all that a full run does; `TOLLGATE_SEED=…` repeats a run that failed.

mod call;
mod long_runs;
mod model;
mod random_calls;
