//! The question to a backend.

use crate::{BackendError, Charge, FailureKind, MAX_CHARGES};

/// A call: the charges that are decided together, and whether part of their cost is worth having.
///
/// ```
/// use tollgate::{Call, Charge, ImmediateBackend, Key, MemoryBackend, Mode, Quota, Scope};
///
/// let quota = Quota::per_day(5);
/// let eight = [Charge {
///     scope: Scope::of("mail", 0, &quota),
///     quota: &quota,
///     key: &Key::from("alice"),
///     cost: 8,
///     mode: Mode::Enforce,
/// }];
/// let backend = MemoryBackend::new();
/// assert!(!backend.decide_now(Call::of(&eight))?.is_admitted());
///
/// let granted = backend.decide_now(Call::of(&eight).at_least(1))?;
/// assert_eq!(granted.verdicts()[0].taken(), 5);
/// # Ok::<(), tollgate::BackendError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The charges.
    pub charges: &'a [Charge<'a>],
    /// The least amount that the call is worth, if it takes [as much as there is](Self::at_least).
    pub at_least: Option<u64>,
}

impl<'a> Call<'a> {
    /// All of the enforced charges, or none of them.
    #[must_use]
    #[inline]
    pub const fn of(charges: &'a [Charge<'a>]) -> Self {
        Self {
            charges,
            at_least: None,
        }
    }

    /// As much as there is: the charges name one cost, which is the most that the call may take, and `least` is the least that it
    /// is worth. If all enforced charges have room for that, the call takes the largest amount that fits all of them. Otherwise it
    /// is denied and takes nothing. Without enforced charges those in shadow mode count, and without these the probes. The verdicts
    /// state the amount: see [`Verdict::taken`](crate::Verdict::taken).
    ///
    /// A backend whose states lie in several places may take from one place after the other and give the surplus back, so that
    /// other callers are denied in between. One without [`Capability::UpTo`](crate::Capability::UpTo) refuses the call.
    #[must_use]
    #[inline]
    pub const fn at_least(self, least: u64) -> Self {
        Self {
            at_least: Some(least),
            ..self
        }
    }

    /// Refuses a call that cannot be decided. For backends.
    ///
    /// # Errors
    ///
    /// If it has more than [`MAX_CHARGES`] charges. If it takes as much as there is, also if two charges ask for different amounts,
    /// since the call grants one amount, or name one budget under two quotas; if one may wait for its turn, since a grant is
    /// decided at once; or if one has an id.
    pub fn check(&self) -> Result<(), BackendError> {
        let charges = self.charges.len();
        if charges > MAX_CHARGES {
            return invalid(format!(
                "{charges} charges in one call, at most {MAX_CHARGES} are allowed"
            ));
        }
        match self.at_least {
            Some(_) => self.check_amounts(),
            None => Ok(()),
        }
    }

    fn check_amounts(&self) -> Result<(), BackendError> {
        let charges = self.charges;
        let amounts = || charges.iter().filter(|charge| charge.grants());
        if amounts().any(|charge| charge.quota.waits()) {
            return invalid("a charge that may wait for its turn cannot be granted in part");
        }
        if charges.iter().any(|charge| charge.quota.is_once()) {
            return invalid("a charge with an id cannot be granted in part");
        }
        let shares = |(index, charge): (usize, &Charge<'_>)| {
            let mut before = charges[..index].iter();
            before.any(|other| other.shares_state_with(charge) && other.quota != charge.quota)
        };
        if charges.iter().enumerate().any(shares) {
            return invalid(
                "charges of one budget under two quotas in one call, which grants one amount",
            );
        }
        let least = amounts().map(|charge| charge.cost).min();
        let most = amounts().map(|charge| charge.cost).max();
        match (least, most) {
            (Some(least), Some(most)) if least != most => invalid(format!(
                "charges of {least} and of {most} in one call, which grants one amount"
            )),
            _ => Ok(()),
        }
    }
}

#[cold]
fn invalid(detail: impl Into<String>) -> Result<(), BackendError> {
    Err(BackendError::new(FailureKind::InvalidCall, detail.into()))
}
