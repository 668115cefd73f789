//! The items that an annotation names at the beginning of a gRPC method if the feature `tonic` is off, and nothing limits
//! methods.

use std::future::{Ready, ready};

/// The trait that the request of a method has to implement.
#[diagnostic::on_unimplemented(
    message = "`#[rate_limit]` on methods needs tollgate's feature `tonic`",
    label = "a function with `self` is taken for a method of a gRPC service",
    note = "an axum handler has no `self`: it takes `State`"
)]
pub trait NeedsFeatureTonic {
    /// The error of a refusal. No value exists, since nothing is refused here.
    type Error;
}

/// Compiles for nothing.
pub fn enter<L, R: NeedsFeatureTonic>(request: R) -> Ready<Result<R, R::Error>> {
    ready(Ok(request))
}
