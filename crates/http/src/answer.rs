//! Answers to refused requests, and the headers on every answer.
#![doc = include_str!("answer/outcomes.md")]

mod answer_body;
mod answers;
mod expose;
mod fields;
mod grpc;
mod headers;
mod into_answer;
mod jitter;
mod line;
mod member;
mod plain_text;
mod problem;
mod refusal;
mod respond;
mod retry_after;
mod see_other;
mod texts;
mod violation;

pub use self::answer_body::AnswerBody;
pub use self::answers::Answers;
pub(crate) use self::answers::has_fields_on;
#[cfg(feature = "tonic")]
pub use self::grpc::closed;
#[cfg(feature = "tonic")]
pub(crate) use self::grpc::too_late;
pub use self::grpc::{GrpcAnswers, GrpcCode, GrpcStatus};
pub use self::headers::{HeaderForm, RateLimitHeaders};
pub use self::into_answer::IntoAnswer;
pub use self::jitter::Jitter;
pub use self::member::refill_seconds;
pub use self::plain_text::PlainText;
pub use self::problem::ProblemJson;
pub use self::refusal::{Refusal, RefusalReason};
pub use self::respond::Respond;
pub use self::see_other::SeeOther;
