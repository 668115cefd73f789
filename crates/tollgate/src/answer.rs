//! What a caller is told: the answer to a refused request, and the fields on every answer.
//!
//! | what happened | HTTP | gRPC | headers |
//! | --- | --- | --- | --- |
//! | over quota | 429 | `RESOURCE_EXHAUSTED` | `Retry-After` (absent if it can never pass), RateLimit fields, `no-store` |
//! | the limiter cannot decide, and the policy denies | 503 | `UNAVAILABLE` | `no-store` |
//! | the request does not say who it is from, and the policy denies | 403 | `PERMISSION_DENIED` | `no-store` |
//! | on a policy's block list | 403 or 429, as the list says | `PERMISSION_DENIED` or `RESOURCE_EXHAUSTED` | `no-store` |
//! | passed | the service's | the service's | RateLimit fields |
//!
//! Over gRPC a refusal also says `grpc-retry-pushback-ms` and `grpc-status-details-bin`, and the RateLimit fields are written
//! only if asked for: see [`GrpcAnswers`].

mod fields;
mod grpc;
mod prepared;
mod problem;
mod rendered;
mod respond;
mod retry_after;

pub(crate) use self::fields::{policy_member, prepare_fields, write_fields};
pub(crate) use self::grpc::Dialect;
pub use self::grpc::GrpcAnswers;
pub(crate) use self::prepared::Prepared;
pub use self::problem::ProblemJson;
pub(crate) use self::respond::{PreparedRefusal, Responder};
pub use self::respond::{Refusal, RefusalReason, Respond};
