//! Questions of an operator that change nothing: the callers of a policy, and one of them.

use std::time::Duration;

use axum::response::Response;
use serde_json::{Value, json};
use tollgate::{Key, Verdict};

use super::answer::{ApiError, object};
use super::asked::{Asked, Body, Query, switch_name};
use crate::caller;

/// The rows of a list, unless the request states another number.
const MOST_ROWS: usize = 20;

impl Asked<'_> {
    /// The callers that a policy has denied most.
    pub(super) fn offenders(&self, query: &str) -> Result<Response, ApiError> {
        let query = Query::read(query, &["policy", "most"])?;
        let policy = self.policy(query.required("policy")?)?;
        let most = query.most(MOST_ROWS)?;
        let offenders = self.live.limiter.offenders(policy.name())?;
        let callers = offenders.callers().iter().take(most).map(|caller| {
            let mut told = json!({
                "denials": caller.denials(),
                "error": caller.error(),
            });
            told_key(&mut told, caller.key());
            told
        });
        Ok(object(&json!({
            "policy": policy.name(),
            "denials": offenders.denials(),
            "distinct": offenders.distinct(),
            "callers": callers.collect::<Vec<_>>(),
        })))
    }

    /// The callers that a policy bans.
    pub(super) async fn bans(&self, query: &str) -> Result<Response, ApiError> {
        let query = Query::read(query, &["policy", "most"])?;
        let policy = self.policy(query.required("policy")?)?;
        let most = query.most(MOST_ROWS)?;
        let list = self.live.limiter.bans(policy.name()).await?;
        let mut banned: Vec<_> = list.callers().iter().collect();
        banned.sort_by(|one, other| {
            let by_time = other.left().cmp(&one.left());
            by_time.then_with(|| one.identity().cmp(other.identity()))
        });
        let callers = banned.iter().take(most).map(|one| {
            let mut told = json!({ "caller": one.identity(), "banned_for_ms": ms(one.left()) });
            if let Some(key) = one.key() {
                told_key(&mut told, key);
            }
            told
        });
        Ok(object(&json!({
            "policy": policy.name(),
            "banned": banned.len(),
            "complete": list.is_complete(),
            "callers": callers.collect::<Vec<_>>(),
        })))
    }

    /// The caller that a query names.
    pub(super) async fn caller_of(&self, query: &str) -> Result<Response, ApiError> {
        let query = Query::read(query, &["policy", "caller"])?;
        let (policy, caller) = (query.required("policy")?, query.required("caller")?);
        self.caller(policy, caller).await
    }

    /// The caller that a body names.
    pub(super) async fn caller_in(&self, body: &Body) -> Result<Response, ApiError> {
        body.only(&["policy", "caller"])?;
        self.caller(body.policy()?, body.caller()?).await
    }

    /// The budgets and the ban of one caller.
    async fn caller(&self, policy: &str, caller: &str) -> Result<Response, ApiError> {
        let policy = self.policy(policy)?;
        let key = self.key(&policy, caller)?;
        let limiter = &self.live.limiter;
        let standing = limiter.standing(policy.name(), &key).await?;
        let (bans, budgets): (Vec<_>, Vec<_>) = standing
            .budgets
            .iter()
            .partition(|budget| budget.quota.is_ban());
        let ban = bans.first().map(|ban| ban.verdict);
        let banned_for = ban.and_then(|ban| ban.retry_after().filter(|_| ban.is_denied()));
        let strikes = ban
            .filter(|ban| !ban.is_denied())
            .map(|ban| ban.remaining());
        let passes = !standing.is_blocked
            && standing
                .budgets
                .iter()
                .all(|budget| !budget.verdict.is_denied());
        let budgets = budgets.iter().map(|budget| {
            let verdict = &budget.verdict;
            json!({
                "name": budget.name,
                "quota": budget.quota.to_string(),
                "limit": verdict.limit(),
                "remaining": verdict.remaining(),
                "passes": !verdict.is_denied(),
                "retry_after_ms": Verdict::retry_after(verdict).map(ms),
                "reset_after_ms": ms(verdict.reset_after()),
            })
        });
        let mut told = json!({
            "policy": policy.name(),
            "switch": switch_name(limiter.switch_of(policy.name())),
            "passes": passes,
            "blocked": standing.is_blocked,
            "bans": policy.bans(),
            "banned_for_ms": banned_for.map(ms),
            "strikes_until_ban": strikes,
            "budgets": budgets.collect::<Vec<_>>(),
        });
        told_key(&mut told, &key);
        Ok(object(&told))
    }
}

/// Adds a caller: in the form that the API reads, and as the text that it is, if it is one.
pub(super) fn told_key(told: &mut Value, key: &Key) {
    told["caller"] = caller::shown(key).into();
    told["text"] = key.text().into();
}

/// Whole milliseconds, rounded up.
pub(super) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX)
}
