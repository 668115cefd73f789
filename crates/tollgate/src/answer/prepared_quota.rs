//! The texts that a quota brings into every answer.

use http::HeaderValue;

use super::fields::{plain_policy_member, policy_member, prepare_fields};
use super::prepared::{Prepared, PreparedRefusal};
use crate::policy::Labels;

/// What answers say of a quota again and again, rendered once and kept with its labels.
///
/// Every thread reads it on every request. It lives as long as the labels, which is as long as the process, so that no reference
/// count is needed that threads would fight over.
#[derive(Debug)]
pub(super) struct PreparedQuota {
    /// Its member of the `RateLimit-Policy` field.
    pub(super) member: HeaderValue,
    /// The same where quotas have no names.
    pub(super) plain_member: HeaderValue,
    /// What its member of the `RateLimit` field begins with.
    pub(super) state: String,
    /// The RateLimit fields of an answer when no other quota took part.
    pub(super) fields: Prepared,
    /// The answer that says that it was exceeded.
    pub(super) refusal: PreparedRefusal,
}

impl PreparedQuota {
    /// That of the quota which has these labels. The first answer that speaks of the quota renders it.
    #[inline]
    pub(super) fn of(labels: &'static Labels) -> &'static Self {
        labels.attached.get(|| Self::new(labels))
    }

    #[cold]
    fn new(labels: &Labels) -> Self {
        let Labels { quota, rule, .. } = labels;
        let member = HeaderValue::from_static(policy_member(quota, rule).leak());
        let plain_member = HeaderValue::from_static(plain_policy_member(rule).leak());
        Self {
            fields: prepare_fields(&member),
            refusal: PreparedRefusal::of(quota, &member),
            member,
            plain_member,
            state: format!("\"{quota}\";r="),
        }
    }
}
