//! Tollgate measured beside what one would use instead.
//!
//! Each [`Scenario`] is one way to serve a request, the same request for all: built anew each time, with the peer's address
//! in its extensions, a thousand addresses in turn, answered at once by a service that does nothing else. What a limiter
//! costs is what its scenario costs above [`Scenario::Bare`].

mod scenario;

pub use scenario::{Scenario, with_charges, with_policies};
