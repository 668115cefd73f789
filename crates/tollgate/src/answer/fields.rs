//! The headers that say how budgets stand, in all their forms.

mod draft_07;
mod draft_11;
mod line;
mod standing;
mod triple;

use std::ptr;

use http::{HeaderMap, HeaderName};
use smallvec::SmallVec;

pub(super) use self::draft_07::plain_policy_member;
pub(crate) use self::draft_11::write_usual_fields;
pub(super) use self::draft_11::{policy_member, prepare_fields, state};
use self::standing::{Standing, told_wait};

use super::{HeaderForm, RateLimitHeaders};
use crate::ledger::Ledger;
use crate::policy::Labels;
use crate::report::Report;

pub(super) const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
pub(super) const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Adds what is chosen for what took part. Returns whether there was anything to say.
pub(super) fn write_chosen_fields(
    headers: &mut HeaderMap,
    ledger: &Ledger,
    chosen: &RateLimitHeaders,
) -> bool {
    let report = ledger.report();
    let Some(tightest) = report.tightest() else {
        return false;
    };
    let verdict = tightest.verdict();
    if let Some(share) = chosen.below
        && !tightest.refuses()
        && !share.is_more_than(verdict.remaining(), verdict.limit())
    {
        return false;
    }
    let told = told_wait(headers, tightest);
    let standing = Standing::of(tightest, told);
    for form in chosen.forms() {
        match form {
            HeaderForm::Draft11 if chosen.all_policies => {
                draft_11::append_all(headers, report, told);
            }
            HeaderForm::Draft11 => draft_11::append(headers, report, tightest, told),
            HeaderForm::Draft07 => draft_07::write(headers, report, standing),
            HeaderForm::Draft06 => triple::write(headers, &triple::DRAFT_06, standing),
            HeaderForm::Legacy => {
                let at = ledger.decided_at(tightest);
                triple::write(headers, &triple::LEGACY, standing.until(at));
            }
        }
    }
    true
}

/// The quotas that took part, each once: charged by the layer, and by the handler once more, it is still one.
fn quotas(report: &Report) -> SmallVec<[&'static Labels; 8]> {
    let mut quotas = SmallVec::<[&Labels; 8]>::new();
    for one in report.enforced() {
        if !quotas.iter().any(|known| ptr::eq(*known, one.labels())) {
            quotas.push(one.labels());
        }
    }
    quotas
}

/// Whether somebody has written one of the fields of this form already.
pub(super) fn has_fields(headers: &HeaderMap, form: HeaderForm) -> bool {
    form.names().iter().any(|name| headers.contains_key(*name))
}
