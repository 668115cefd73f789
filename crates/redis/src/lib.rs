//! Tollgate's shared backend: a fleet enforces one budget, decided in Redis by atomic scripts.

mod script;
mod wire;
