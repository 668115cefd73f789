//! Fleets in virtual time, and the page about them.

mod fleets;
mod page;
