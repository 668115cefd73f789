//! The answers to refused requests that a closure may return.

use bytes::{Bytes, BytesMut};
use http::Response;

/// An answer that [`respond_with`](crate::RateLimitLayer::respond_with) takes: a response of text or bytes, and with the feature
/// `axum` anything that a handler might return.
///
/// `Via` tells the two apart. The compiler infers it.
///
/// ```
/// use http::{Response, StatusCode};
/// use tollgate::IntoAnswer;
///
/// let mut answer = Response::new("slow down\n");
/// *answer.status_mut() = StatusCode::TOO_MANY_REQUESTS;
/// assert_eq!(answer.into_answer().map(|whole| whole.body().len()), Some(10));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an answer to a refused request",
    note = "answers are `http::Response`s of text or bytes, as `refusal.response(\"slow down\")` makes them, and with the feature \
            `axum` whatever implements `axum::response::IntoResponse`"
)]
pub trait IntoAnswer<Via> {
    /// The whole answer. `None` if its body has to be waited for.
    fn into_answer(self) -> Option<Response<Bytes>>;
}

/// Marks responses of text or bytes.
#[derive(Clone, Copy, Debug)]
pub enum ViaBytes {}

/// Marks the values that a handler may return.
#[cfg(feature = "axum")]
#[derive(Clone, Copy, Debug)]
pub enum ViaAxum {}

macro_rules! bytes {
    ($($body:ty),*) => {$(
        impl IntoAnswer<ViaBytes> for Response<$body> {
            fn into_answer(self) -> Option<Response<Bytes>> {
                Some(self.map(Into::into))
            }
        }
    )*};
}

bytes!(
    Bytes,
    BytesMut,
    &'static str,
    &'static [u8],
    Vec<u8>,
    Box<[u8]>
);
// It is a body for axum, too, and the compiler would not know by which way to go.
#[cfg(not(feature = "axum"))]
bytes!(String);

#[cfg(feature = "axum")]
mod axum {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use ::axum::body::Body;
    use ::axum::response::IntoResponse;
    use bytes::{Bytes, BytesMut};
    use http::Response;
    use http_body::Body as _;

    use super::{IntoAnswer, ViaAxum};

    impl<T: IntoResponse> IntoAnswer<ViaAxum> for T {
        fn into_answer(self) -> Option<Response<Bytes>> {
            let (parts, body) = self.into_response().into_parts();
            Some(Response::from_parts(parts, at_once(body)?))
        }
    }

    /// Bodies of handlers are complete when the handler returns, except streams. An answer to a refused request is not a stream.
    fn at_once(mut body: Body) -> Option<Bytes> {
        /// A stream could go on for ever.
        const MOST_BYTES: usize = 1024 * 1024;
        const MOST_FRAMES: usize = 1024;

        let mut cx = Context::from_waker(Waker::noop());
        let mut all = Bytes::new();
        for _ in 0..MOST_FRAMES {
            let data = match Pin::new(&mut body).poll_frame(&mut cx) {
                Poll::Ready(None) => return Some(all),
                Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
                Poll::Ready(Some(Err(_))) | Poll::Pending => return None,
            };
            if all.is_empty() {
                all = data;
            } else {
                let mut joined = BytesMut::from(all);
                joined.extend_from_slice(&data);
                all = joined.freeze();
            }
            if all.len() > MOST_BYTES {
                return None;
            }
        }
        None
    }
}
