//! The items of a body whose messages are charged.

use std::error::Error;

use bytes::Bytes;
use http_body::Frame;

/// The error of such a body: that of the body within, whatever it is.
pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// The item that the body yields.
pub(super) type BodyItem = Option<Result<Frame<Bytes>, BoxError>>;
