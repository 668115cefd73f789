//! Bans by hand, and strikes by responses.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Backend, Ban, BanList, Call, Charge, Decision, Mode, Scope, Verdict};

use super::plan::Entries;
use super::{CheckError, Limiter};
use crate::{Key, Policy, Quota};

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
        let (scope, ban, key) = self.ban_on(policy, &key.into())?;
        if key.is_incomplete() {
            return Err(CheckError::WrongKey {
                policy: policy.to_owned(),
                reason: "callers who lack their identity, or a part of it, cannot be banned: they have one key together".to_owned(),
            });
        }
        let imposed = ban.try_imposed(lasting).map_err(CheckError::BanLength)?;
        self.ask_ban(scope, &imposed.into(), &key, 1).await?;
        Ok(())
    }

    /// Ends the ban of the identity `key` under a policy, and forgets its strikes and the bans before. Its budgets stay as they
    /// are; [`reset`](Self::reset) makes these full as well.
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
        let (scope, _, key) = self.ban_on(policy, &key.into())?;
        let reset = self.0.backend.admin().reset(scope, &key);
        reset.await.map_err(CheckError::Unavailable)
    }

    /// The time for which the identity `key` is still banned under a policy; `None` if it is not. This charges nothing and is not
    /// a knock.
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
        let (scope, ban, key) = self.ban_on(policy, &key.into())?;
        let decision = self.ask_ban(scope, &ban.into(), &key, 0).await?;
        let verdict = decision.verdicts().first();
        Ok(verdict.and_then(Verdict::retry_after))
    }

    /// The callers that are banned under a policy, and the rest of each ban. The cause of the ban does not matter. For a policy on
    /// trial, these are the callers that it would keep out. Callers that have strikes, or bans behind them, are not among them.
    /// This charges nothing and is not a knock.
    ///
    /// It is for operators, and not for every request: the backend looks at all of its states. A [list](BanList) has at most
    /// 10,000 callers. In Redis it is made by `SCAN` on each master, 500 names at a time and at most a million on each node,
    /// outside of scripts; the user needs `+scan` for that. A list is not [complete](BanList::is_complete) if it ended before it
    /// had seen all names, met a state on its way to another node, or met a state that it cannot read.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Ban, Limiter, Policy, Quota};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let ban = Ban::after(5, Duration::from_secs(600));
    /// let limiter = Limiter::from(Policy::new("login", Quota::per_minute(10)).ban(ban));
    /// limiter.ban("login", "mallory", Duration::from_secs(3600)).await?;
    ///
    /// let list = limiter.bans("login").await?;
    /// for caller in &list {
    ///     println!("{} for {:?} more", caller.identity(), caller.left());
    /// }
    /// if !list.is_complete() {
    ///     println!("and others");
    /// }
    /// # assert_eq!(list.callers()[0].identity(), "=mallory");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no policy of that name, if the policy has no ban, if the backend or a single node of a cluster fails, or if the
    /// backend cannot list bans.
    pub async fn bans(&self, policy: &str) -> Result<BanList, CheckError> {
        let policy = self.named(policy)?;
        let (scope, _) = ban_of(&policy)?;
        let list = self.0.backend.admin().bans(scope).await;
        list.map_err(|error| CheckError::Unlisted {
            policy: policy.name().into(),
            error,
        })
    }

    /// The ban of a policy, and the identity as its requests have it.
    fn ban_on(&self, policy: &str, key: &Key) -> Result<(Scope, Ban, Key), CheckError> {
        let policy = self.named(policy)?;
        let key = self.identity(&policy, key)?;
        let (scope, ban) = ban_of(&policy)?;
        Ok((scope, ban, key))
    }

    pub(super) fn named(&self, policy: &str) -> Result<Arc<Policy>, CheckError> {
        let unknown = || CheckError::UnknownPolicy {
            policy: policy.into(),
        };
        self.policy(policy).ok_or_else(unknown)
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
        let decided = self.0.backend.decide(Call::of(&[Charge {
            scope,
            quota: ban,
            key,
            cost: strikes,
            mode,
        }]));
        decided.await.map_err(CheckError::Unavailable)
    }

    /// Adds the strikes of a request that waited and is refused in the end. While it waited, no denial was one, since it asked
    /// several times.
    #[cold]
    pub(super) fn strike_refused(&self, entries: Entries<'_>, refused: &Decision) {
        let mut verdicts = refused.verdicts().iter();
        for payer in entries.iter() {
            let mut is_denied = false;
            for (limit, verdict) in payer.limits().iter().zip(verdicts.by_ref()) {
                // The ban stands behind the quotas. One in force counts no strike, and may hear the knock.
                if let Some(ban) = limit.quota.ban()
                    && payer.mode() == Mode::Enforce
                    && if verdict.is_denied() {
                        ban.is_extending()
                    } else {
                        is_denied
                    }
                {
                    self.0.settler.strike(&limit.label, payer.key, false);
                }
                is_denied |= verdict.is_denied();
            }
        }
    }
}

fn ban_of(policy: &Policy) -> Result<(Scope, Ban), CheckError> {
    let ban = policy.ban_limit();
    let ban = ban.and_then(|limit| Some((limit.scope, limit.quota.ban()?)));
    ban.ok_or_else(|| CheckError::NeverBans {
        policy: policy.name().into(),
    })
}
