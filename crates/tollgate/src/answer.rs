//! What a caller is told: the answer to a refused request, and the headers on every answer.
//!
//! | what happened | HTTP | body | gRPC | headers |
//! | --- | --- | --- | --- | --- |
//! | over quota | 429 | `quota-exceeded` | `RESOURCE_EXHAUSTED` | `Retry-After`, RateLimit fields, `no-store` |
//! | asks for more than the quota ever holds | 429 | `quota-exceeded` | `RESOURCE_EXHAUSTED` | RateLimit fields, `no-store`; no `Retry-After` |
//! | on a policy's block list, [`Block::Forbidden`](crate::Block::Forbidden) | 403 | a problem without type | `PERMISSION_DENIED` | `no-store` |
//! | on a policy's block list, [`Block::TooManyRequests`](crate::Block::TooManyRequests) | 429 | `abnormal-usage-detected` | `RESOURCE_EXHAUSTED` | `no-store` |
//! | does not say who it is from, under [`OnMissing::Deny`](crate::OnMissing::Deny) | 403 | a problem without type | `PERMISSION_DENIED` | `no-store` |
//! | the backend failed, under [`OnFailure::Deny`](crate::OnFailure::Deny) | 503 | `temporary-reduced-capacity` | `UNAVAILABLE` | `no-store` |
//! | the backend failed, and a budget of this process decided | as if the backend had | | | |
//! | the backend failed, and the request passed | the service's | the service's | the service's | |
//! | passed, whatever a policy on trial says | the service's | the service's | the service's | RateLimit fields of the policies that are enforced |
//! | passed, and the service redirects | the service's | the service's | | |
//! | exempt, or covered by no policy | the service's | the service's | the service's | |
//!
//! Status and body of a refusal are the user's, if there is a [`Respond`]; the headers are added where they are missing. If
//! it redirects, none is: a browser would wait for `Retry-After` before it follows, and where it is sent another budget
//! counts. Over gRPC the RateLimit fields are written only [on request](crate::RateLimitHeaders::over_grpc). In which form
//! they come is for [`RateLimitHeaders`] to say.

mod answers;
mod expose;
mod fields;
mod grpc;
mod headers;
mod jitter;
mod plain_text;
mod prepared;
mod problem;
mod refusal;
mod rendered;
mod respond;
mod retry_after;
mod see_other;

pub(crate) use self::answers::{Answers, Writes};
pub(crate) use self::fields::{
    plain_policy_member, policy_member, prepare_fields, write_usual_fields,
};
pub use self::headers::{HeaderForm, RateLimitHeaders};
pub use self::jitter::Jitter;
pub use self::plain_text::PlainText;
pub(crate) use self::prepared::{Prepared, PreparedRefusal};
pub use self::problem::ProblemJson;
pub use self::refusal::{Refusal, RefusalReason};
pub use self::respond::Respond;
pub use self::see_other::SeeOther;
