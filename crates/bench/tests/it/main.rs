//! The measurements: what they count, and that they run.

mod allocations;
mod bodies;
mod load;
mod pace;
