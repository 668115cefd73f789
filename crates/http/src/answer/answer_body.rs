//! Bodies of answers, with their content types.

use std::borrow::Cow;

use bytes::Bytes;
use http::HeaderValue;

/// A body for [`Refusal::response`](crate::Refusal::response), with its `Content-Type`. As for axum, texts are `text/plain;
/// charset=utf-8` and bytes are `application/octet-stream`. [`of`](Self::of) makes a body of another type.
///
/// ```
/// use tollgate::{AnswerBody, Quota, RateLimitLayer};
///
/// let busy: AnswerBody = "slow down\n".into();
/// let layer = RateLimitLayer::new(Quota::per_second(10)).respond_with(move |refusal| refusal.response(busy.clone()));
/// // A text needs no name: it becomes a body with its content type.
/// let layer = RateLimitLayer::new(Quota::per_second(10)).respond_with(|refusal| refusal.response("slow down\n"));
/// ```
#[derive(Clone, Debug)]
pub struct AnswerBody {
    pub(super) bytes: Bytes,
    pub(super) content_type: HeaderValue,
}

impl AnswerBody {
    /// A body of this type.
    ///
    /// ```
    /// use http::HeaderValue;
    /// use tollgate::{AnswerBody, Quota, RateLimitLayer};
    ///
    /// const PAGE: &str = "<!doctype html><title>Slow down</title>";
    ///
    /// let layer = RateLimitLayer::new(Quota::per_second(10)).respond_with(|refusal| {
    ///     refusal.response(AnswerBody::of(HeaderValue::from_static("text/html; charset=utf-8"), PAGE))
    /// });
    /// ```
    pub fn of(content_type: HeaderValue, bytes: impl Into<Bytes>) -> Self {
        Self {
            bytes: bytes.into(),
            content_type,
        }
    }

    fn text(bytes: impl Into<Bytes>) -> Self {
        Self::of(HeaderValue::from_static("text/plain; charset=utf-8"), bytes)
    }

    fn octets(bytes: impl Into<Bytes>) -> Self {
        Self::of(HeaderValue::from_static("application/octet-stream"), bytes)
    }
}

impl From<&'static str> for AnswerBody {
    fn from(text: &'static str) -> Self {
        Self::text(text)
    }
}

impl From<String> for AnswerBody {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<Cow<'static, str>> for AnswerBody {
    fn from(text: Cow<'static, str>) -> Self {
        match text {
            Cow::Borrowed(text) => Self::text(text),
            Cow::Owned(text) => Self::text(text),
        }
    }
}

impl From<&'static [u8]> for AnswerBody {
    fn from(bytes: &'static [u8]) -> Self {
        Self::octets(bytes)
    }
}

impl<const N: usize> From<&'static [u8; N]> for AnswerBody {
    fn from(bytes: &'static [u8; N]) -> Self {
        Self::octets(bytes.as_slice())
    }
}

impl From<Vec<u8>> for AnswerBody {
    fn from(bytes: Vec<u8>) -> Self {
        Self::octets(bytes)
    }
}

impl From<Bytes> for AnswerBody {
    fn from(bytes: Bytes) -> Self {
        Self::octets(bytes)
    }
}
