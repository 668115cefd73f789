//! The headers with the state of budgets, in all their forms.

mod draft_07;
mod draft_11;
mod standing;
mod triple;

use std::sync::Arc;

use http::HeaderMap;
use smallvec::SmallVec;
use tollgate_limiter::transport::{Label, Report};

pub(super) use self::draft_11::state;
use self::standing::{Standing, told_wait};

use super::member::{RATE_LIMIT, RATE_LIMIT_POLICY};
use super::{HeaderForm, RateLimitHeaders};

/// Adds the chosen headers for the quotas that took part. Members of another limiter further in stay, and ours follow them.
/// Returns false if there was nothing to write.
pub(super) fn write_fields(
    headers: &mut HeaderMap,
    report: Report<'_>,
    chosen: &RateLimitHeaders,
) -> bool {
    let Some(tightest) = report.sole().or_else(|| report.tightest()) else {
        return false;
    };
    let verdict = tightest.verdict();
    if let Some(share) = chosen.below
        && !tightest.refuses()
        && !share.is_more_than(verdict.remaining(), tightest.limit())
    {
        return false;
    }
    let told = told_wait(headers, tightest);
    let standing = || Standing::of(tightest, told);
    for form in chosen.forms() {
        match form {
            HeaderForm::Draft11 if chosen.all_policies => {
                draft_11::append_all(headers, report, told);
            }
            HeaderForm::Draft11 => draft_11::append(headers, report, tightest, told),
            HeaderForm::Draft07 => draft_07::write(headers, report, standing()),
            HeaderForm::Draft06 => triple::write(headers, &triple::DRAFT_06, standing()),
            HeaderForm::Legacy => {
                triple::write(headers, &triple::LEGACY, standing().until(tightest.at()));
            }
        }
    }
    true
}

/// The quotas that took part, each once. A quota that the layer and the handler both charge is one.
fn quotas(report: Report<'_>) -> SmallVec<[&Arc<Label>; 8]> {
    let mut quotas = SmallVec::<[&Arc<Label>; 8]>::new();
    for one in report.enforced() {
        if !quotas.iter().any(|known| Arc::ptr_eq(known, one.label())) {
            quotas.push(one.label());
        }
    }
    quotas
}

/// True if one of the fields of this form is there already.
pub(super) fn has_fields(headers: &HeaderMap, form: HeaderForm) -> bool {
    form.names().iter().any(|name| headers.contains_key(*name))
}
