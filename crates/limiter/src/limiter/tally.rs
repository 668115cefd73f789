//! The result of a decision about one policy, in the words of the metrics.

use tollgate_core::{Mode, Outcome, Verdict};

use super::event::{Cause, Origin};
use super::plan::Payer;

/// The result of a decision about one policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tally {
    Allowed,
    Waited,
    Denied,
    Banned,
    AllowedByShare,
    DeniedByShare,
    PassedUndecided,
    RefusedUndecided,
    Blocked,
    Exempt,
    Off,
    Unidentified,
    PassedUnidentified,
    TierUnknown,
    Shed,
    Left,
    Replayed,
    Unasked,
}

/// The names of the results, in their order.
pub(super) const RESULTS: [&str; 18] = [
    "allowed",
    "waited",
    "denied",
    "banned",
    "allowed_by_share",
    "denied_by_share",
    "passed_undecided",
    "refused_undecided",
    "blocked",
    "exempt",
    "off",
    "unidentified",
    "passed_unidentified",
    "tier_unknown",
    "shed",
    "left",
    "replayed",
    "unasked",
];

impl Tally {
    /// The result of a policy whose quotas were asked.
    pub(super) fn of(payer: Payer<'_>, verdicts: &[Verdict], origin: Origin) -> Self {
        let mut tally = Self::Allowed;
        for (limit, verdict) in payer.limits().iter().zip(verdicts) {
            tally = tally.and(Self::of_verdict(verdict, limit.quota.is_ban()));
            if origin.has_waited_for(&limit.quota) && payer.mode() == Mode::Enforce {
                tally = tally.and(Self::Waited);
            }
        }
        Self::of_cause(origin.cause).unwrap_or(tally.by(origin.cause))
    }

    /// The name.
    pub(super) fn word(self) -> &'static str {
        RESULTS[self as usize]
    }

    /// The result of a cause that no quota was asked for; `None` if one was, or if nothing was decided.
    pub(super) fn of_cause(cause: Cause) -> Option<Self> {
        match cause {
            Cause::PassedUndecided => Some(Self::PassedUndecided),
            Cause::RefusedUndecided => Some(Self::RefusedUndecided),
            Cause::Blocked => Some(Self::Blocked),
            Cause::Exempt => Some(Self::Exempt),
            Cause::Off => Some(Self::Off),
            Cause::Unidentified => Some(Self::Unidentified),
            Cause::PassedUnidentified => Some(Self::PassedUnidentified),
            Cause::TierUnknown => Some(Self::TierUnknown),
            Cause::Shed => Some(Self::Shed),
            Cause::Left => Some(Self::Left),
            Cause::Replayed => Some(Self::Replayed),
            Cause::Unasked => Some(Self::Unasked),
            Cause::Backend | Cause::Known | Cause::Leased | Cause::Local | Cause::NoPlace => None,
            Cause::Settled | Cause::Released | Cause::Credited | Cause::Debited => None,
        }
    }

    /// The result of one quota that was asked.
    #[inline]
    pub(super) fn of_verdict(verdict: &Verdict, is_ban: bool) -> Self {
        match verdict.outcome() {
            Outcome::Deny(_) if is_ban => Self::Banned,
            Outcome::Deny(_) => Self::Denied,
            _ if !verdict.wait().is_zero() => Self::Waited,
            _ => Self::Allowed,
        }
    }

    /// The result of a policy with another of its quotas.
    fn and(self, other: Self) -> Self {
        if (other as usize) > (self as usize) {
            other
        } else {
            self
        }
    }

    pub(super) fn by(self, cause: Cause) -> Self {
        match (cause, self) {
            (Cause::Local, Self::Denied | Self::Banned) => Self::DeniedByShare,
            (Cause::Local, _) => Self::AllowedByShare,
            (_, tally) => tally,
        }
    }
}
