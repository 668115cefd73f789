//! Bans beside the quotas of a policy.

use std::sync::Arc;

use super::outcome::{CountIf, Outcome, StrikeRule};
use super::{Block, Label, Limit, Policy};
use crate::{Ban, ConfigError, Quota, ResponseView, Scope};

impl Policy {
    /// Bans callers that are denied too often: see [`Ban`]. Each request that a quota of this policy denies is a strike, in
    /// whatever tier the caller is. A banned caller is refused with 429 and the exact end of the ban, or as
    /// [`answer_banned`](Self::answer_banned) says, and charged nothing.
    ///
    /// Choose the key with care. A ban by account alone lets any caller lock out the account's owner, by failing on purpose in the
    /// owner's name; a pair of address and account does not.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Ban, Policy, Quota};
    ///
    /// let guesses = Ban::after(5, Duration::from_secs(600)).lasting(Duration::from_secs(900));
    /// let login = Policy::new("login", Quota::per_minute(10)).ban(guesses);
    /// ```
    ///
    /// The last one on a policy counts. On a policy on trial the ban is on trial as well: it would hold, and keeps no caller out.
    ///
    /// The limiter is not built if the policy refuses every request without it: if it has no quotas, nor has any tier.
    #[must_use]
    pub fn ban(mut self, ban: Ban) -> Self {
        let quota = Quota::from(ban);
        let scope = Scope::of(&self.name, 0, &quota);
        let name = format!("{}-ban", self.name);
        let answer = self.answer_banned.unwrap_or(Block::TooManyRequests);
        self.ban = Some(Box::new(PolicyBan {
            limit: Limit {
                quota,
                scope,
                label: Label::of_ban(&self.name, scope, &name, &quota, answer),
            },
            terms: ban,
        }));
        self.place_ban();
        self.with_outcome_anew()
    }

    /// Chooses the answer to a banned caller: [`Block::TooManyRequests`], the default, is 429 with the end of the ban as
    /// `Retry-After`, and [`Block::Forbidden`] is 403, which says nothing of it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Ban, Block, Policy, Quota};
    ///
    /// let scanners = Policy::new("scan", Quota::per_minute(30))
    ///     .ban(Ban::after(3, Duration::from_secs(3600)))
    ///     .answer_banned(Block::Forbidden);
    /// ```
    ///
    /// It may stand before the [ban](Self::ban) or behind it. The limiter is not built without one.
    #[must_use]
    pub fn answer_banned(mut self, answer: Block) -> Self {
        self.answer_banned = Some(answer);
        match self.ban.as_ref().map(|ban| ban.terms) {
            Some(ban) => self.ban(ban),
            None => self,
        }
    }

    /// Makes a response a strike of the policy's [ban](Self::ban), as a denial is: a failed login, a path that only a scanner asks
    /// for. The strike counts once the response exists, so that the requests in flight still pass.
    ///
    /// A request whose caller goes away before its response is a strike as well. Otherwise a caller that hangs up early would guess
    /// without end wherever a failure takes longer than a success. So name the routes whose callers wait for the answer, as those of
    /// a login do.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Ban, Policy, Quota};
    ///
    /// let login = Policy::new("login", Quota::per_minute(30))
    ///     .route("/login")
    ///     .ban(Ban::after(5, Duration::from_secs(600)).lasting(Duration::from_secs(900)))
    ///     .strike_if(|response| response.status().is_client_error());
    /// ```
    ///
    /// The last one on a policy counts. It may stand before the ban or behind it. The limiter is not built without one.
    #[must_use]
    pub fn strike_if(
        self,
        strikes: impl Fn(&ResponseView<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.striking(Arc::new(strikes))
    }

    pub(crate) fn striking(mut self, strikes: Arc<CountIf>) -> Self {
        self.strike_if = Some(strikes);
        self.with_outcome_anew()
    }

    /// Refuses a ban that means nothing, and what means nothing without a ban.
    pub(super) fn check_ban(&self) -> Result<(), ConfigError> {
        let reason = match &self.ban {
            None if self.strike_if.is_some() => {
                "`strike_if` names strikes, and there is no ban to count them: add `ban`".to_owned()
            }
            None if self.answer_banned.is_some() => {
                "`answer_banned` answers the banned, and there is no ban: add `ban`".to_owned()
            }
            None => return Ok(()),
            Some(_) if !self.has_quotas_somewhere() => {
                "a ban stands beside quotas, and the policy has none: it refuses every request already".to_owned()
            }
            Some(ban) => match ban.terms.check() {
                Ok(()) => return Ok(()),
                Err(error) => error.to_string(),
            },
        };
        Err(ConfigError::Ban {
            policy: self.name.to_string(),
            reason,
        })
    }

    /// True if some identities have quotas, or may have.
    fn has_quotas_somewhere(&self) -> bool {
        let mut of_tiers = self.tiers.iter().flat_map(|tiers| tiers.limits());
        !self.limits.is_empty() || of_tiers.next().is_some() || self.asks_for_quotas()
    }

    /// The quotas of every tier, with the ban behind them.
    pub(super) fn place_ban(&mut self) {
        let Some(ban) = &self.ban else {
            return;
        };
        self.limits = with_ban(&self.limits, &ban.limit);
        if let Some(tiers) = &mut self.tiers {
            Arc::make_mut(tiers).place_ban(&ban.limit);
        }
    }

    /// This policy, whose responses set the cost by this rule, and are strikes by its own.
    pub(crate) fn corrected_by(mut self, cost: Option<Outcome>) -> Self {
        self.outcome = match (&self.strike_if, &self.ban) {
            (Some(strike_if), Some(ban)) => Some(Outcome::Strike(Arc::new(StrikeRule {
                strikes: Arc::clone(strike_if),
                ban: Arc::clone(&ban.limit.label),
                cost,
            }))),
            _ => cost,
        };
        self
    }

    /// The rule of the responses anew, after a change of the ban or of its strikes.
    fn with_outcome_anew(self) -> Self {
        let cost = self.outcome.as_ref().and_then(Outcome::cost).cloned();
        self.corrected_by(cost)
    }

    /// True if it bans callers.
    #[doc(hidden)]
    #[must_use]
    pub fn bans(&self) -> bool {
        self.ban_limit().is_some()
    }

    /// The ban's limit, if there is one.
    pub(crate) fn ban_limit(&self) -> Option<&Limit> {
        self.ban.as_ref().map(|ban| &ban.limit)
    }
}

/// The ban of a policy, as it stands beside its quotas and as it was stated.
#[derive(Clone, Debug)]
pub(crate) struct PolicyBan {
    limit: Limit,
    terms: Ban,
}

/// These quotas with the ban behind them, in place of an earlier one. A limit of 0 refuses every caller already.
pub(super) fn with_ban(limits: &[Limit], ban: &Limit) -> Arc<[Limit]> {
    let quotas = limits.iter().filter(|limit| !limit.quota.is_ban());
    let ban = (!limits.is_empty()).then_some(ban);
    quotas.chain(ban).cloned().collect()
}
