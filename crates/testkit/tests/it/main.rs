//! The real servers that the tests of all crates start.

mod topologies;
