//! The texts that a quota brings into every answer.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use tollgate_limiter::transport::Label;

use super::member::{RATE_LIMIT, RATE_LIMIT_POLICY, plain_policy_member, policy_member};
use super::violation::{PROBLEM_JSON, problem_body};

/// The texts of one quota, which are made once and copied for each answer.
#[derive(Debug)]
pub(super) struct Texts {
    /// Its member of the `RateLimit-Policy` field.
    pub(super) member: HeaderValue,
    /// Its member of that field in the form in which quotas have no names.
    pub(super) plain_member: HeaderValue,
    /// The beginning of its member of the `RateLimit` field.
    pub(super) state: Box<str>,
    /// The answer that says that it alone was exceeded, for now, with room for its numbers in `RateLimit` and `Retry-After`, which
    /// come first. Copying a map costs a fraction of building one, and attackers exercise this path: 4,209 instructions instead of
    /// 6,122 when it was first done.
    pub(super) refusal: Response<Bytes>,
}

impl Texts {
    fn of(label: &Label) -> Self {
        let (name, quota) = (label.quota(), label.whole());
        let member = policy_member(name, quota);
        let number = HeaderValue::from_static("");
        let headers = [
            (RATE_LIMIT, number.clone()),
            (RETRY_AFTER, number),
            (RATE_LIMIT_POLICY, member.clone()),
            (CONTENT_TYPE, PROBLEM_JSON),
            (CACHE_CONTROL, NO_STORE),
        ];
        let mut refusal = Response::new(Bytes::from(problem_body([name])));
        *refusal.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        *refusal.headers_mut() = headers.into_iter().collect();
        Self {
            member,
            refusal,
            state: format!("\"{name}\";r=").into(),
            plain_member: plain_policy_member(quota),
        }
    }
}

/// The texts of a quota.
#[inline]
pub(super) fn texts(label: &Label) -> &Texts {
    label.attached().get(|| Texts::of(label))
}

pub(super) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
