//! The status that a refused call ends with.

use std::borrow::Cow;

use http::HeaderValue;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use tollgate_limiter::Block;

use crate::{Refusal, RefusalReason};

/// The status of a refused call: a code for programs, and a sentence for people.
///
/// [`GrpcAnswers::status_by`](crate::GrpcAnswers::status_by) changes it.
///
/// ```
/// use tollgate::{GrpcCode, GrpcStatus};
///
/// let status = GrpcStatus::new(GrpcCode::ResourceExhausted, "slow down, please");
/// assert_eq!(status.message, "slow down, please");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GrpcStatus {
    /// The code. Clients decide by it whether they try again.
    pub code: GrpcCode,
    /// The sentence, in any characters. Characters that a header cannot carry are encoded as gRPC says.
    pub message: Cow<'static, str>,
}

/// The codes of gRPC with which a call can be refused, by their numbers. Only `OK` is not among them.
///
/// ```
/// use tollgate::GrpcCode;
///
/// assert_eq!(GrpcCode::ResourceExhausted as i32, 8);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "gRPC says what they mean")]
pub enum GrpcCode {
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

impl GrpcStatus {
    /// Makes a status of a code and a sentence.
    pub fn new(code: GrpcCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// The usual status.
    pub(super) fn of(refusal: &Refusal<'_>) -> Self {
        match refusal.reason() {
            RefusalReason::QuotaExceeded => {
                Self::new(GrpcCode::ResourceExhausted, "quota exceeded")
            }
            RefusalReason::Undecided => Self::new(
                GrpcCode::Unavailable,
                "the rate limiter cannot decide at the moment",
            ),
            RefusalReason::Shed(_) => {
                Self::new(GrpcCode::Unavailable, "the server is under pressure")
            }
            RefusalReason::Blocked(Block::Forbidden) => {
                Self::new(GrpcCode::PermissionDenied, "the caller is blocked")
            }
            RefusalReason::Blocked(Block::TooManyRequests) => {
                Self::new(GrpcCode::ResourceExhausted, "the caller is blocked")
            }
            RefusalReason::Banned(Block::Forbidden) => {
                Self::new(GrpcCode::PermissionDenied, "the caller is banned")
            }
            RefusalReason::Banned(Block::TooManyRequests) => Self::new(
                GrpcCode::ResourceExhausted,
                "the caller is banned for a time",
            ),
            RefusalReason::Unidentified(missing) => {
                let code = if refusal.asks_for_credentials() {
                    GrpcCode::Unauthenticated
                } else {
                    GrpcCode::PermissionDenied
                };
                Self::new(code, format!("there is {missing}"))
            }
        }
    }

    /// The value of `grpc-message`.
    pub(super) fn message_value(&self) -> HeaderValue {
        /// The characters that stand in the header unescaped: visible ASCII and blanks, except the percent sign.
        const ENCODED: &AsciiSet = &CONTROLS.add(b'%');

        if let Cow::Borrowed(message) = self.message
            && message
                .bytes()
                .all(|byte| matches!(byte, b' '..=b'~') && byte != b'%')
        {
            return HeaderValue::from_static(message);
        }
        let encoded = utf8_percent_encode(&self.message, ENCODED).to_string();
        // Nothing is left that a header could not carry.
        HeaderValue::from_str(&encoded).unwrap_or(HeaderValue::from_static(""))
    }
}

impl GrpcCode {
    pub(super) fn value(self) -> HeaderValue {
        HeaderValue::from(self as u16)
    }
}

#[cfg(feature = "tonic")]
impl From<GrpcCode> for tonic::Code {
    fn from(code: GrpcCode) -> Self {
        Self::from_i32(code as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_sentence_becomes_a_header() {
        let cases: [(Cow<'static, str>, &str); 5] = [
            ("".into(), ""),
            ("quota exceeded".into(), "quota exceeded"),
            ("100% of it".into(), "100%25 of it"),
            ("zu viel für heute\n".into(), "zu viel f%C3%BCr heute%0A"),
            (String::from("a\0b\x7f").into(), "a%00b%7F"),
        ];
        for (message, expected) in cases {
            let status = GrpcStatus::new(GrpcCode::Aborted, message);
            assert_eq!(status.message_value(), expected);
        }
    }
}
