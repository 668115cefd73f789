//! Tollgate measured beside the alternatives.
//!
//! Each [`Scenario`] is one way to serve a request. The request is one for all: built anew each time, with the peer's address
//! in its extensions, a thousand addresses in turn, answered at once by a service that does nothing else. The cost of a limiter
//! is the cost of its scenario above that of [`Scenario::Bare`].

mod exporter;
mod scenario;

pub use exporter::prometheus;
pub use scenario::{Scenario, with_charges, with_policies};
