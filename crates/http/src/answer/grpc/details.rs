//! The details of a status, for programs: `google.rpc`'s error model.

use std::collections::{BTreeMap, HashMap};

use http::HeaderMap;
use tollgate_limiter::PolicyVerdict;
use tonic_types::{ErrorDetails, QuotaViolation, StatusExt};

use super::GrpcStatus;
use crate::{Refusal, RefusalReason};

/// Writes `grpc-status-details-bin`.
pub(super) fn write(
    headers: &mut HeaderMap,
    status: &GrpcStatus,
    refusal: &Refusal<'_>,
    domain: &str,
) {
    let status = tonic::Status::with_error_details(
        status.code.into(),
        status.message.as_ref(),
        details(refusal, domain),
    );
    // It refuses texts that are not header values. There are none, because the status was made here.
    drop(status.add_header(headers));
}

fn details(refusal: &Refusal<'_>, domain: &str) -> ErrorDetails {
    let mut details = ErrorDetails::new();
    let mut metadata = HashMap::new();
    if let RefusalReason::Unidentified(missing) = refusal.reason() {
        metadata.insert("missing".to_owned(), missing.what().to_owned());
    }
    details.set_error_info(reason(refusal.reason()), domain, metadata);
    if let RefusalReason::QuotaExceeded = refusal.reason() {
        details.set_quota_failure(violations(refusal));
    }
    if let RefusalReason::QuotaExceeded | RefusalReason::Banned(_) | RefusalReason::Shed(_) =
        refusal.reason()
        && let Some(wait) = refusal.retry_after()
    {
        details.set_retry_info(Some(wait));
    }
    details
}

/// In the form that `ErrorInfo` asks for. The first is the one that Google's own services give.
fn reason(reason: RefusalReason<'_>) -> &'static str {
    match reason {
        RefusalReason::QuotaExceeded => "RATE_LIMIT_EXCEEDED",
        RefusalReason::Undecided => "RATE_LIMITER_UNAVAILABLE",
        RefusalReason::Unidentified(_) => "CALLER_UNIDENTIFIED",
        RefusalReason::Blocked(_) => "CALLER_BLOCKED",
        RefusalReason::Banned(_) => "CALLER_BANNED",
        RefusalReason::Shed(_) => "SERVER_UNDER_PRESSURE",
    }
}

/// One violation for each policy that refuses, even if several of its quotas do. The subject is the policy, so that no identity
/// is shown.
fn violations(refusal: &Refusal<'_>) -> Vec<QuotaViolation> {
    let mut by_policy: BTreeMap<_, Vec<&PolicyVerdict>> = BTreeMap::new();
    for verdict in refusal.violated() {
        by_policy.entry(verdict.policy()).or_default().push(verdict);
    }
    let violation = |(policy, verdicts): (&str, Vec<&PolicyVerdict>)| {
        let quotas: Vec<_> = verdicts
            .iter()
            .map(|one| one.label().whole().to_string())
            .collect();
        QuotaViolation {
            quota_id: policy.to_owned(),
            quota_value: smallest(&verdicts),
            ..QuotaViolation::new(
                format!("policy:{policy}"),
                format!("exceeds {}", quotas.join(" and ")),
            )
        }
    };
    by_policy.into_iter().map(violation).collect()
}

/// The capacity of the smallest full budget among them.
fn smallest(verdicts: &[&PolicyVerdict]) -> i64 {
    let limits = verdicts.iter().map(|one| one.limit());
    limits
        .min()
        .and_then(|limit| i64::try_from(limit).ok())
        .unwrap_or(i64::MAX)
}
