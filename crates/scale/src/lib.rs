//! Fleets of limiters in virtual time: many processes, many servers, several regions.
//!
//! The simulation uses core's own rule and blocks (`decide`, `Blocks`, receipts), and models the rest: the
//! arrivals, the network, the servers' queues, and the way in which requests share calls. There is no clock and no server in it,
//! so that a run depends on its seed alone. `docs/scale.md` has what came out.
//!
//! | part | what it is |
//! | --- | --- |
//! | [`Settings`] | the fleet, its load, and what happens to it |
//! | [`simulate`] | a run from beginning to end |
//! | [`Outcome`] | the figures of a run |
//! | [`runs`] | the runs of `docs/scale.md`, and their figures |
//! | [`measured`] | the points that are measured on a real server |
//! | [`pictures`], [`page`] | the plots, and the tables |

#![allow(
    clippy::float_arithmetic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates, shares and places on a page; decisions are core's"
)]

mod agent;
mod chart;
mod excess;
mod fleet;
mod load;
pub mod measured;
mod outcome;
pub mod page;
pub mod pictures;
pub mod runs;
mod server;
mod settings;

pub use excess::excess;
pub use fleet::simulate;
pub use load::{Load, Pulses};
pub use outcome::{Moment, Outcome, Pass, Span, Tracked};
pub use settings::{Settings, Shape};
