//! The changes that an operator makes, each with a line in the log.

use std::time::Duration;

use axum::response::Response;
use serde_json::json;
use tollgate::{CheckError, Key};

use super::answer::{ApiError, object};
use super::asked::{Asked, Body, switch_name};
use super::looks::{ms, told_key};

/// A change of one caller.
#[derive(Clone, Copy)]
enum CallerChange {
    Reset,
    Ban(Duration),
    Unban,
}

/// The words before a failure that comes after the change.
const DONE: &str = "the change is made, and the backend could not be asked what holds now";

impl Asked<'_> {
    /// Switches a policy.
    pub(super) fn switch(&self, body: &Body) -> Result<Response, ApiError> {
        body.only(&["policy", "to"])?;
        let name = body.policy()?;
        let policy = self.policy(name)?;
        let to = body
            .to
            .ok_or_else(|| ApiError::bad_request("to: is missing; it is on, shadow or off"))?;
        let limiter = &self.live.limiter;
        // The limiter writes a line about it, and this one says by which connection it came.
        limiter.switch(policy.name(), to.into())?;
        let switch = switch_name(limiter.switch_of(policy.name()));
        let from = self.from.map(tracing::field::display);
        tracing::warn!(
            policy = policy.name(),
            switch,
            from,
            "the admin has switched a policy"
        );
        Ok(object(
            &json!({ "policy": policy.name(), "switch": switch }),
        ))
    }

    /// Resets, bans or unbans a caller.
    pub(super) async fn change(&self, operation: &str, body: &Body) -> Result<Response, ApiError> {
        let takes: &[&str] = match operation {
            "ban" => &["policy", "caller", "seconds"],
            _ => &["policy", "caller"],
        };
        body.only(takes)?;
        let (name, text) = (body.policy()?, body.caller()?);
        let change = match operation {
            "reset" => CallerChange::Reset,
            "unban" => CallerChange::Unban,
            _ => {
                let seconds = body.seconds.ok_or_else(|| {
                    ApiError::bad_request("seconds: is missing; it is the length of the ban")
                })?;
                CallerChange::Ban(Duration::from_secs(seconds))
            }
        };
        let policy = self.policy(name)?;
        let key = self.key(&policy, text)?;
        let limiter = &self.live.limiter;
        let made = async {
            let was_banned = match (change, policy.bans()) {
                (CallerChange::Reset, false) => None,
                _ => limiter.banned(policy.name(), key.clone()).await?,
            };
            self.make(change, policy.name(), &key).await?;
            Ok(was_banned)
        };
        let made = made.await.map_err(|error: CheckError| error.into());
        let mark = self.admin.mark(&key);
        let from = self.from.map(tracing::field::display);
        let was_banned = made.inspect_err(|error: &ApiError| {
            if error.is_of_request() {
                return;
            }
            let (policy, reason, from) = (policy.name(), error.reason(), from.as_ref());
            // A server that was asked may have made the change although no answer came.
            tracing::warn!(
                operation,
                policy,
                caller = mark,
                from,
                reason,
                "the admin could not change a caller, or does not know whether it has"
            );
        })?;
        let seconds = body.seconds;
        tracing::warn!(
            operation,
            policy = policy.name(),
            caller = mark,
            seconds,
            from,
            "the admin has changed a caller"
        );
        let is_banned = match policy.bans() {
            true => {
                let banned = limiter.banned(policy.name(), key.clone()).await;
                banned.map_err(|error| ApiError::from(error).behind(DONE))?
            }
            false => None,
        };
        let mut told = json!({
            "operation": operation,
            "policy": policy.name(),
            "was_banned_for_ms": was_banned.map(ms),
            "banned_for_ms": is_banned.map(ms),
            "logged_as": mark,
        });
        told_key(&mut told, &key);
        Ok(object(&told))
    }

    async fn make(&self, change: CallerChange, policy: &str, key: &Key) -> Result<(), CheckError> {
        let limiter = &self.live.limiter;
        match change {
            CallerChange::Reset => limiter.reset(policy, key.clone()).await,
            CallerChange::Ban(lasting) => limiter.ban(policy, key.clone(), lasting).await,
            CallerChange::Unban => limiter.unban(policy, key.clone()).await,
        }
    }
}
