//! The body of a request, as far as it has been read before the limiter looks.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};

use crate::RequestView;

/// What is known of the body of a request, in its extensions. A layer outside of the limiter puts it there.
#[derive(Clone, Debug)]
pub enum SeenBody {
    /// All of it.
    Whole(Bytes),
    /// Why it has not been read.
    Unread(&'static str),
}

impl SeenBody {
    const NO_LAYER: &str = "there is no BufferBodyLayer that reads the body";

    /// The whole body, or why it is not known.
    pub(super) fn of<'a>(request: &RequestView<'a>) -> Result<&'a [u8], &'static str> {
        match request.extensions().get() {
            Some(Self::Whole(body)) => Ok(body),
            Some(Self::Unread(why)) => Err(why),
            None => Err(Self::NO_LAYER),
        }
    }
}

/// What a body says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentType {
    /// `application/x-www-form-urlencoded`.
    Form,
    /// `application/json`, or a type that ends in `+json`.
    Json,
}

impl ContentType {
    /// Nothing, if it is neither, or if there are several statements.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut lines = headers.get_all(CONTENT_TYPE).iter();
        let (Some(only), None) = (lines.next().map(HeaderValue::to_str), lines.next()) else {
            return None;
        };
        let essence = only.ok()?.split(';').next()?.trim().to_ascii_lowercase();
        match essence.as_str() {
            "application/x-www-form-urlencoded" => Some(Self::Form),
            "application/json" => Some(Self::Json),
            other if other.starts_with("application/") && other.ends_with("+json") => {
                Some(Self::Json)
            }
            _ => None,
        }
    }
}
