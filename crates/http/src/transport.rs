//! The parts of this transport that another one over HTTP needs. `tollgate-grpc` answers with them, and limits methods in the
//! same way as handlers.
//!
//! This module may change with any version of Tollgate: it is made for Tollgate's own crates.

#[cfg(feature = "axum")]
pub use crate::annotation::entrance::{EntranceError, enter};
#[cfg(feature = "axum")]
pub use crate::annotation::name::of_route;
#[cfg(feature = "axum")]
pub use crate::annotation::site::{Owner, Site};
#[cfg(feature = "tonic")]
pub use crate::answer::closed;
pub use crate::answer::{Answers, refill_seconds};
#[cfg(feature = "tonic")]
pub use crate::layer::Deadline;
pub use crate::layer::Passage;
pub use crate::settings::Config;
#[cfg(feature = "tonic")]
pub use crate::status::mark_status;
