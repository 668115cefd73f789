//! What an annotation writes at the beginning of a gRPC method where nothing limits methods: the feature `tonic` is not there.

use std::future::{Ready, ready};

/// What the request of a method has to be.
#[diagnostic::on_unimplemented(
    message = "`#[rate_limit]` on methods needs tollgate's feature `tonic`",
    label = "a function with `self` is taken for a method of a gRPC service",
    note = "an axum handler has no `self`: it takes `State`"
)]
pub trait NeedsFeatureTonic {
    /// Why it is refused: never, since it never comes to that.
    type Error;
}

/// Compiles for nothing.
pub fn enter<L, R: NeedsFeatureTonic>(request: R) -> Ready<Result<R, R::Error>> {
    ready(Ok(request))
}
