//! The body of a request, as far as it has been read before the limiter looks.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};

use crate::RequestView;

/// The body of a request, as far as it is known, in the request's extensions. A layer outside the limiter puts it there.
///
/// An extractor of your own reads the body that a `BufferBodyLayer` has read:
///
/// ```
/// use tollgate::key::{SeenBody, KeyMissing};
/// use tollgate::{Key, RequestView};
///
/// fn first_line(request: &RequestView<'_>) -> Result<Key, KeyMissing> {
///     match request.extensions().get::<SeenBody>() {
///         Some(SeenBody::Whole(body)) => Ok(Key::bytes(body.split(|byte| *byte == b'\n').next().unwrap_or(&[]))),
///         _ => Err(KeyMissing::new("body").ambiguous("it has not been read")),
///     }
/// }
/// ```
#[derive(Clone, Debug)]
pub enum SeenBody {
    /// All of it.
    Whole(Bytes),
    /// The reason why it has not been read.
    Unread(&'static str),
}

impl SeenBody {
    const NO_LAYER: &str = "there is no BufferBodyLayer that reads the body";

    /// The whole body, or why it is not known as one of this kind. Some handlers do not ask for its type, and others choose a reader by
    /// it.
    pub(super) fn of<'a>(
        request: &RequestView<'a>,
        kind: ContentType,
    ) -> Result<&'a [u8], &'static str> {
        match request.extensions().get() {
            Some(Self::Whole(body)) => match ContentType::of(request.headers()) {
                Some(other) if other != kind && !body.is_empty() => Err(other.instead()),
                _ => Ok(body),
            },
            Some(Self::Unread(why)) => Err(why),
            None => Err(Self::NO_LAYER),
        }
    }
}

/// The kind of a body by its content type.
///
/// ```
/// use http::HeaderMap;
/// use tollgate::key::ContentType;
///
/// let mut headers = HeaderMap::new();
/// headers.insert("content-type", "application/problem+json".parse().unwrap());
/// assert!(matches!(ContentType::of(&headers), Some(ContentType::Json)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentType {
    /// `application/x-www-form-urlencoded`.
    Form,
    /// `application/json`, or a type that ends in `+json`.
    Json,
}

impl ContentType {
    /// The reason why a body of this kind is not one of another kind.
    fn instead(self) -> &'static str {
        match self {
            Self::Form => "the body is a form by its content type",
            Self::Json => "the body is JSON by its content type",
        }
    }

    /// `None` if the body is neither, or if there are several statements.
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
