//! The reasons why a check has no answer.

use std::error::Error;
use std::fmt;

use tollgate_core::{BackendError, MAX_CHARGES};

use crate::QuotaError;

/// The reason why a [`Check`](crate::Check) has no answer. A denial is an answer, and not among the reasons.
///
/// ```
/// use tollgate::{CheckError, Limiter, Quota};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let limiter = Limiter::from(Quota::per_second(10));
/// match limiter.check("send-mail", "alice").await {
///     Ok(checked) => println!("allowed: {}", checked.is_allowed()),
///     Err(CheckError::UnknownPolicy { policy }) => println!("no policy {policy}"),
///     Err(error) => println!("{error}"),
/// }
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum CheckError {
    /// The limiter has no policy of this name.
    UnknownPolicy {
        /// The name.
        policy: String,
    },
    /// The policy has no class of this name.
    UnknownClass {
        /// The policy's name.
        policy: String,
        /// The class, shortened if its name is long.
        class: String,
    },
    /// No request under the policy ever has this kind of identity: text, where the policy's key is an address. The keys of
    /// closures may be anything.
    WrongKey {
        /// The policy's name.
        policy: String,
        /// The kind of the policy's key, and the value to pass. The identity itself is not named.
        reason: String,
    },
    /// No quota of the policy lets a request wait, and [`acquire`](crate::Limiter::acquire) waits.
    NeverWaits {
        /// The policy's name.
        policy: String,
    },
    /// The check asks for [as much as there is](crate::Check::up_to), and that cannot be.
    UpTo {
        /// The policy's name.
        policy: String,
        /// The most that it asks for.
        most: u64,
        /// The reason.
        reason: String,
    },
    /// A check of [several](crate::Limiter::check_all) belongs to another limiter.
    OtherLimiter {
        /// The policy's name.
        policy: String,
    },
    /// Some of [several](crate::Limiter::check_all) checks are probes, and others charge.
    ProbeAmong,
    /// Two of [several](crate::Limiter::check_all) checks ask one policy about one identity.
    Repeated {
        /// The policy's name.
        policy: String,
    },
    /// The policies of [several](crate::Limiter::check_all) checks have more quotas than one decision may have.
    TooManyCharges {
        /// The most charges that the checks could make, those of ids among them.
        charges: usize,
    },
    /// The sliding logs of [several](crate::Limiter::check_all) checks have more entries than one decision may read.
    TooManyLogEntries {
        /// The number of their entries.
        entries: usize,
        /// The number of entries that one decision may read.
        most: usize,
    },
    /// The policy has no terms for ids, and the check has an [id](crate::Check::id).
    NeverOnce {
        /// The policy's name.
        policy: String,
    },
    /// The policy has no ban.
    NeverBans {
        /// The policy's name.
        policy: String,
    },
    /// The quotas that the check [states](crate::Check::quotas) cannot be those of the policy.
    Quotas {
        /// The policy's name.
        policy: String,
        /// The reason.
        reason: String,
    },
    /// The length of the ban cannot be.
    BanLength(QuotaError),
    /// The backend failed, and the policy refuses requests then.
    Unavailable(BackendError),
    /// The backend could not list the bans of a policy.
    Unlisted {
        /// The policy's name.
        policy: String,
        /// The reason, with the right that is missing if it is one.
        error: BackendError,
    },
    /// The tier or quota of the identity could not be found out, and the policy refuses requests then: see
    /// [`OnUnknown::Deny`](crate::OnUnknown::Deny).
    TierUnknown {
        /// The policy's name. For several checks, the names of all policies with tiers or stated quotas.
        policy: String,
    },
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPolicy { policy } => {
                write!(f, "policy {policy:?}: there is no policy of this name")
            }
            Self::UnknownClass { policy, class } => write!(
                f,
                "policy {policy:?}: class {class:?}: there is no class of this name"
            ),
            Self::WrongKey { policy, reason } => write!(f, "policy {policy:?}: {reason}"),
            Self::NeverWaits { policy } => write!(
                f,
                "policy {policy:?}: none of its quotas lets a request wait: use `check`, or add `.wait_up_to(..)` to one"
            ),
            Self::UpTo {
                policy,
                most,
                reason,
            } => write!(f, "policy {policy:?}: up to {most}: {reason}"),
            Self::OtherLimiter { policy } => {
                write!(f, "policy {policy:?}: the check belongs to another limiter")
            }
            Self::ProbeAmong => f.write_str(
                "some of the checks are probes and others charge: probe all of them, or none",
            ),
            Self::Repeated { policy } => write!(
                f,
                "policy {policy:?}: two checks ask about the same identity: make one of them, with the sum of the costs"
            ),
            Self::TooManyCharges { charges } => write!(
                f,
                "the checks could charge {charges} quotas, and at most {MAX_CHARGES} are decided together"
            ),
            Self::TooManyLogEntries { entries, most } => write!(
                f,
                "the sliding logs of the checks have {entries} entries, and one decision reads at most {most}"
            ),
            Self::NeverOnce { policy } => write!(
                f,
                "policy {policy:?}: it charges no id once: add `.once(..)` or `.once_by(..)`"
            ),
            Self::NeverBans { policy } => {
                write!(f, "policy {policy:?}: it has no ban: add `.ban(..)`")
            }
            Self::Quotas { policy, reason } => {
                write!(f, "policy {policy:?}: the quotas of the check: {reason}")
            }
            Self::BanLength(error) => write!(f, "the length of the ban: {error}"),
            Self::Unavailable(_) => f.write_str("the limiter cannot decide"),
            Self::Unlisted { policy, error } => {
                write!(f, "policy {policy:?}: the bans cannot be listed: {error}")
            }
            Self::TierUnknown { policy } => {
                write!(
                    f,
                    "policy {policy:?}: the tier or quota of the identity is not known"
                )
            }
        }
    }
}

impl Error for CheckError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::UnknownPolicy { .. }
            | Self::UnknownClass { .. }
            | Self::WrongKey { .. }
            | Self::NeverWaits { .. }
            | Self::UpTo { .. }
            | Self::OtherLimiter { .. }
            | Self::ProbeAmong
            | Self::Repeated { .. }
            | Self::TooManyCharges { .. }
            | Self::TooManyLogEntries { .. }
            | Self::NeverOnce { .. }
            | Self::NeverBans { .. }
            | Self::Quotas { .. }
            | Self::BanLength(_)
            | Self::Unlisted { .. }
            | Self::TierUnknown { .. } => None,
            Self::Unavailable(error) => Some(error),
        }
    }
}
