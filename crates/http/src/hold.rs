//! Holds: they keep what a request holds for longer than the response.

use std::fmt;

use crate::RateLimitStatus;

/// Keeps what a request holds under [`Concurrent`](tollgate_limiter::Concurrent) limits until it is dropped, and until the response
/// is over.
///
/// A response is over when its body has ended or was dropped, and most handlers need no hold. A handler takes one if its work goes
/// on without the response: a WebSocket, whose response is over before the first message, or a task that was spawned. Under axum it
/// is an extractor; elsewhere [`RateLimitStatus::hold`] gives one. Clones hold together: the places are given back when the last
/// clone is gone.
///
/// ```
/// # #[cfg(feature = "axum")] {
/// use axum::{Router, routing::post};
/// use tollgate::{Concurrent, Hold, RateLimitLayer};
///
/// async fn render(hold: Hold) -> &'static str {
///     tokio::spawn(async move {
///         // The caller's next video waits for the end of this one.
///         let _held = hold;
///     });
///     "in the works"
/// }
///
/// let app: Router = Router::new()
///     .route("/videos", post(render))
///     .layer(RateLimitLayer::new(Concurrent::at_most(2)));
/// # }
/// ```
#[must_use = "what is held is given back when the hold is dropped"]
pub struct Hold(RateLimitStatus);

impl RateLimitStatus {
    /// Keeps what the request holds, in all layers around the handler, until the hold is dropped.
    ///
    /// ```
    /// use tollgate::{Hold, RateLimitStatus};
    ///
    /// fn of_a_call(call: &tonic::Request<()>) -> Option<Hold> {
    ///     call.extensions().get().map(RateLimitStatus::hold)
    /// }
    /// ```
    pub fn hold(&self) -> Hold {
        self.ledger().begin_hold();
        Hold(self.clone())
    }
}

impl Clone for Hold {
    fn clone(&self) -> Self {
        self.0.hold()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.ledger().end_hold();
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hold")
    }
}

#[cfg(feature = "axum")]
impl<S: Sync> axum::extract::FromRequestParts<S> for Hold {
    type Rejection = (http::StatusCode, &'static str);

    async fn from_request_parts(
        parts: &mut http::request::Parts,
        _state: &S,
    ) -> Result<Self, Self::Rejection> {
        let status = parts.extensions.get().map(RateLimitStatus::hold);
        status.ok_or((
            http::StatusCode::INTERNAL_SERVER_ERROR,
            "this handler takes a Hold: add a RateLimitLayer around it that has a status",
        ))
    }
}
