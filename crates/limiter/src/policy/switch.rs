//! The switch of a policy, which an operator turns while the service runs.

use super::Policy;

/// The state of a policy's switch: see [`Limiter::switch`](crate::Limiter::switch).
///
/// ```
/// use tollgate::Switch;
///
/// assert_eq!(Switch::default(), Switch::On);
/// // Of two switches the one holds that limits less.
/// assert_eq!(Switch::Shadow.max(Switch::Off), Switch::Off);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Switch {
    /// The policy decides as it says.
    #[default]
    On,
    /// The policy is on [trial](Policy::shadow): decided and reported, never enforced.
    Shadow,
    /// The policy is not asked. Requests pass, and nothing is charged.
    Off,
}

impl Policy {
    /// True if an operator has switched it off.
    #[inline]
    pub(crate) fn is_off(&self) -> bool {
        self.switch == Switch::Off
    }

    /// Turns the operator's switch.
    pub(crate) fn turn(&mut self, to: Switch) {
        let is_trial = *self.stated_shadow.get_or_insert(self.shadow);
        self.shadow = is_trial || to == Switch::Shadow;
        self.switch = to;
    }
}
