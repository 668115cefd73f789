//! The memory of one id, from one request to the next.

use crate::attempt::VerdictRecord;
use crate::order::Identified;
use crate::terms::micros;

/// The memory of an id, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    Nothing,
    Charged(Charged),
    Unknown,
}

/// A charge that is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Charged {
    pub(super) until_us: u64,
    /// The replays so far: at least, and at most.
    least: u64,
    most: u64,
    /// True if an answer told of the charge. A charge that no caller heard of is given back when its answer comes after all.
    is_heard: bool,
    /// Says whether it was given back by now. Then no replay passes on it, and it tells of no replay that is left.
    returned: Return,
}

/// The event between two requests that gives back the charge of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Return {
    No,
    Perhaps,
    Surely,
}

/// The replays of a charge, and the end of its life, as an answer tells them.
type Told = Option<(u64, u64)>;

impl Charged {
    /// The time of the charge.
    pub(super) fn since_us(&self) -> u64 {
        self.until_us.saturating_sub(micros(Identified::LIFE))
    }
}

impl Memory {
    /// The memory just before a request, if so many others may have come unheard since the one before, and the charge was given
    /// back.
    pub(super) fn until(self, at_us: u64, unheard: u64, returned: Return) -> Self {
        let gone = if unheard == 0 {
            Self::Nothing
        } else {
            // One of them may have been charged.
            Self::Unknown
        };
        match self {
            Self::Charged(charged) if at_us >= charged.until_us => gone,
            Self::Charged(charged) => {
                // A charge that was replayed is not given back.
                let returned = match charged.least {
                    0 if charged.most + unheard > 0 => returned.min(Return::Perhaps),
                    0 if charged.is_heard => returned,
                    0 => returned.max(Return::Perhaps),
                    _ => Return::No,
                };
                let returned = charged.returned.max(returned);
                match (returned, unheard) {
                    (Return::No, _) | (_, 0) => Self::Charged(Charged {
                        returned,
                        ..charged
                    }),
                    _ => Self::Unknown,
                }
            }
            Self::Nothing => gone,
            Self::Unknown => Self::Unknown,
        }
    }

    /// The memory after a request, if that is possible.
    pub(super) fn after(
        self,
        at_us: u64,
        unheard: u64,
        said: &[VerdictRecord; 2],
        admitted: bool,
    ) -> Result<Self, String> {
        let [quota, id] = said;
        if admitted && quota.taken > 0 {
            self.lets_charge("charged again", unheard)?;
            if (id.remaining, id.reset_after_us) != (Identified::REPLAYS, micros(Identified::LIFE))
            {
                return Err("an id that was charged begins with another life".to_owned());
            }
            return Ok(Self::Charged(Charged {
                until_us: at_us + id.reset_after_us,
                least: 0,
                most: 0,
                is_heard: true,
                returned: Return::No,
            }));
        }
        let told = told(at_us, id)?;
        if !admitted {
            self.lets_charge("denied", unheard)?;
            self.agrees(told, unheard)?;
            return Ok(self.with(told));
        }
        let Some((used, until_us)) = told else {
            return Err("passed uncharged, and nothing is remembered".to_owned());
        };
        if self.is_returned() {
            return Err("passed uncharged after its charge was given back".to_owned());
        }
        // This replay counts already.
        let Some(before) = used.checked_sub(1) else {
            return Err("passed uncharged as its replay number 0".to_owned());
        };
        self.agrees(Some((before, until_us)), unheard)?;
        Ok(self.with(told))
    }

    /// Says whether the charge that is remembered may have been given back.
    pub(super) fn may_be_returned(self) -> bool {
        matches!(self, Self::Charged(charged) if charged.returned != Return::No)
    }

    fn is_returned(self) -> bool {
        matches!(self, Self::Charged(charged) if charged.returned == Return::Surely)
    }

    /// Says whether a request is not a replay.
    fn lets_charge(self, what: &str, unheard: u64) -> Result<(), String> {
        match self {
            Self::Charged(Charged {
                least,
                most,
                returned: Return::No,
                ..
            }) if most + unheard < Identified::REPLAYS => {
                Err(format!("{what} after {least} to {most} replays"))
            }
            _ => Ok(()),
        }
    }

    /// Says whether an answer tells what can be remembered.
    fn agrees(self, told: Told, unheard: u64) -> Result<(), String> {
        let Self::Charged(charged) = self else {
            return match (self, told) {
                (Self::Nothing, Some(told)) => {
                    Err(format!("nothing is remembered, and it told of {told:?}"))
                }
                _ => Ok(()),
            };
        };
        // One of those that were unheard was charged anew, after all replays.
        let may_be_another = unheard > 0 && charged.most + unheard > Identified::REPLAYS;
        match told {
            Some((used, until_us)) if until_us == charged.until_us => {
                let possible = charged.least..=charged.most + unheard;
                let may_be_closed = charged.returned != Return::No && used == Identified::REPLAYS;
                match !self.is_returned() && possible.contains(&used) || may_be_closed {
                    true => Ok(()),
                    false => Err(format!("replayed {used} times, and it was {possible:?}")),
                }
            }
            Some(_) if may_be_another => Ok(()),
            Some(_) => Err(format!("the life of its id ends at {}", charged.until_us)),
            None if may_be_another => Ok(()),
            None => Err("an id is forgotten before its end".to_owned()),
        }
    }

    /// The memory that an answer told.
    fn with(self, told: Told) -> Self {
        let Some((used, until_us)) = told else {
            return Self::Nothing;
        };
        let is_heard = match self {
            Self::Charged(charged) => charged.is_heard && charged.until_us == until_us,
            _ => false,
        };
        Self::Charged(Charged {
            until_us,
            least: used,
            most: used,
            is_heard,
            returned: Return::No,
        })
    }
}

/// The memory that the verdict on an id tells.
fn told(at_us: u64, id: &VerdictRecord) -> Result<Told, String> {
    let (left, lives_us) = (id.remaining, id.reset_after_us);
    let Some(used) = Identified::REPLAYS.checked_sub(left) else {
        return Err(format!("an id with {left} replays"));
    };
    match (lives_us, used) {
        (0, 0) => Ok(None),
        (0, _) => Err("an id that is forgotten was replayed".to_owned()),
        _ if lives_us > micros(Identified::LIFE) => {
            Err(format!("an id that lives for {lives_us} µs from now on"))
        }
        _ => Ok(Some((used, at_us + lives_us))),
    }
}
