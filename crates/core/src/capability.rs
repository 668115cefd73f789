//! The capabilities of a backend beyond quotas.

use std::fmt;

/// An ability that a backend may have beyond deciding quotas.
///
/// ```
/// use tollgate::Capability;
///
/// assert_eq!(format!("the backend lacks {}", Capability::Bans), "the backend lacks bans");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Capability {
    /// It holds budgets until they are given back, such as requests in flight.
    Held,
    /// It lets a request wait in line for its turn.
    Waits,
    /// It bans an identity for a time.
    Bans,
    /// It remembers finished work, so that nothing is done twice.
    Once,
    /// It grants as much as there is: see [`Call::at_least`](crate::Call::at_least).
    UpTo,
    /// It counts permits that were not decided: see [`Settlement::Assume`](crate::Settlement::Assume).
    Assumes,
}

impl Capability {
    /// All of them, each from the one before. The compiler asks a new one for its place here: a backend would be taken to have
    /// a capability that a list forgot.
    fn all() -> impl Iterator<Item = Self> {
        std::iter::successors(Some(Self::Held), |before| match before {
            Self::Held => Some(Self::Waits),
            Self::Waits => Some(Self::Bans),
            Self::Bans => Some(Self::Once),
            Self::Once => Some(Self::UpTo),
            Self::UpTo => Some(Self::Assumes),
            Self::Assumes => None,
        })
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Held => "limits that are held",
            Self::Waits => "waiting in line",
            Self::Bans => "bans",
            Self::Once => "charges that count once",
            Self::UpTo => "grants of as much as there is",
            Self::Assumes => "permits that were not decided",
        })
    }
}

/// The abilities of a [`Backend`](crate::Backend) beyond quotas, which every backend has. A backend has no capability by
/// default, so that a limiter that needs one is refused while it is built.
///
/// ```
/// use tollgate::{Capabilities, Capability};
///
/// let needed = Capabilities::none().with(Capability::Held).with(Capability::Bans);
/// let offered = Capabilities::none().with(Capability::Held);
///
/// assert!(offered.has(Capability::Held));
/// assert_eq!(offered.missing(needed).collect::<Vec<_>>(), [Capability::Bans]);
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Capabilities(u8);

impl Capabilities {
    /// Quotas and nothing beyond.
    #[must_use]
    pub const fn none() -> Self {
        Self(0)
    }

    /// These and one more.
    #[must_use]
    pub const fn with(self, capability: Capability) -> Self {
        Self(self.0 | capability.bit())
    }

    /// Says whether this is one of them.
    #[must_use]
    pub const fn has(self, capability: Capability) -> bool {
        self.0 & capability.bit() != 0
    }

    /// The needed abilities that are missing here.
    pub fn missing(self, needed: Self) -> impl Iterator<Item = Capability> {
        Capability::all()
            .filter(move |capability| needed.has(*capability) && !self.has(*capability))
    }
}

impl fmt::Debug for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = Capability::all();
        f.debug_set()
            .entries(all.filter(|capability| self.has(*capability)))
            .finish()
    }
}
