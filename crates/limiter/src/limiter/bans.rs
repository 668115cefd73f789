//! Bans by hand, and strikes by responses.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Backend, Ban, Charge, Decision, Mode, Receipt, Scope, Timestamp, Verdict};

use super::{CheckError, Limiter};
use crate::policy::Label;
use crate::{Key, Quota};

/// Bans by an operator, for every process that shares the backend.
impl Limiter {
    /// Bans the identity `key` under a policy with a [ban](crate::Policy::ban): from now on, for this time, whatever its strikes. A
    /// ban that lasts longer already stays as it is.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Ban, Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let ban = Ban::after(5, Duration::from_secs(600));
    /// let limiter = Limiter::from(Policy::new("login", Quota::per_minute(10)).ban(ban));
    ///
    /// limiter.ban("login", "mallory", Duration::from_secs(3600)).await?;
    /// assert!(!limiter.check("login", "mallory").await?.is_allowed());
    /// assert!(limiter.banned("login", "mallory").await? > Some(Duration::from_secs(3590)));
    ///
    /// limiter.unban("login", "mallory").await?;
    /// assert!(limiter.check("login", "mallory").await?.is_allowed());
    /// assert_eq!(limiter.banned("login", "mallory").await?, None);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no policy of that name, if it has no ban, if no request under it can have an identity such as `key`, if the
    /// time is zero or longer than 366 days, or if the backend fails.
    pub async fn ban(
        &self,
        policy: &str,
        key: impl Into<Key> + Send,
        lasting: Duration,
    ) -> Result<(), CheckError> {
        let key = key.into();
        let (scope, _) = self.ban_of(policy, &key)?;
        let imposed = Ban::try_imposed(lasting).map_err(CheckError::BanLength)?;
        self.ask_ban(scope, &imposed.into(), &key, 1).await?;
        Ok(())
    }

    /// Ends the ban of the identity `key` under a policy, and forgets its strikes and the bans before. Its budgets stay as they are;
    /// [`reset`](Self::reset) makes these full as well.
    ///
    /// ```
    /// use tollgate::{CheckError, Limiter};
    ///
    /// /// The support desk lets a customer in again.
    /// async fn forgive(limiter: &Limiter, account: &str) -> Result<(), CheckError> {
    ///     limiter.unban("login", account).await
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`ban`](Self::ban).
    pub async fn unban(&self, policy: &str, key: impl Into<Key> + Send) -> Result<(), CheckError> {
        let key = key.into();
        let (scope, _) = self.ban_of(policy, &key)?;
        let reset = self.0.backend.reset(scope, &key);
        reset.await.map_err(CheckError::Unavailable)
    }

    /// The time for which the identity `key` is still banned under a policy; `None` if it is not. This charges nothing and is no
    /// knock.
    ///
    /// ```
    /// use tollgate::{CheckError, Limiter};
    ///
    /// async fn is_banned(limiter: &Limiter, account: &str) -> Result<bool, CheckError> {
    ///     Ok(limiter.banned("login", account).await?.is_some())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`ban`](Self::ban).
    pub async fn banned(
        &self,
        policy: &str,
        key: impl Into<Key> + Send,
    ) -> Result<Option<Duration>, CheckError> {
        let key = key.into();
        let (scope, ban) = self.ban_of(policy, &key)?;
        let decision = self.ask_ban(scope, &ban, &key, 0).await?;
        let verdict = decision.verdicts().first();
        Ok(verdict.and_then(Verdict::retry_after))
    }

    fn ban_of(&self, policy: &str, key: &Key) -> Result<(Scope, Quota), CheckError> {
        let name = || policy.into();
        let policy = self.policy(policy);
        let policy = policy.ok_or_else(|| CheckError::UnknownPolicy { policy: name() })?;
        self.fits(&policy, key)?;
        let limit = policy.ban_limit();
        let limit = limit.ok_or_else(|| CheckError::NeverBans { policy: name() })?;
        Ok((limit.scope, limit.quota))
    }

    /// Adds strikes under a ban, or asks it. No other budget has a say in it.
    async fn ask_ban(
        &self,
        scope: Scope,
        ban: &Quota,
        key: &Key,
        strikes: u64,
    ) -> Result<Decision, CheckError> {
        let mode = if strikes > 0 {
            Mode::Shadow
        } else {
            Mode::Probe
        };
        let decided = self.0.backend.decide(&[Charge {
            scope,
            quota: ban,
            key,
            cost: strikes,
            mode,
        }]);
        decided.await.map_err(CheckError::Unavailable)
    }

    /// Adds a strike, and waits for no answer.
    pub(super) fn strike(&self, ban: &Arc<Label>, key: &Key) {
        let charge = Charge {
            scope: ban.scope(),
            quota: ban.rule(),
            key,
            cost: 1,
            mode: Mode::Enforce,
        };
        // A debit is what a backend takes without an answer.
        let taken = Verdict::allowed(&charge, 1, 0);
        if let Some(receipt) = Receipt::of(&charge, &taken, Timestamp::default()) {
            self.0.backend.debit(&receipt, 1);
        }
    }
}
