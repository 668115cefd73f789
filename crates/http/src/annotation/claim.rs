//! Names of limits, and the limits that have taken them.

use super::site::Owner;

/// The limit that has taken a name.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) owner: Owner,
    /// The number of the limit among the owner's.
    pub(super) index: usize,
    /// A name that was made of a method and a route belongs to the two.
    pub(super) mount: Option<(&'static str, Box<str>)>,
    /// The limit in words, for an error of another limit that wants the name too.
    pub(super) who: String,
    /// The place in the source.
    pub(super) place: String,
}

impl Claim {
    /// True if both are limits of one route, one within the other.
    pub(super) fn is_around(&self, other: &Self) -> bool {
        let are_routes = matches!(
            (self.owner, other.owner),
            (Owner::Route(_), Owner::Route(_))
        );
        are_routes && self.mount.is_some() && self.mount == other.mount
    }

    pub(super) fn is_the_same(&self, other: &Self) -> bool {
        (self.owner, self.index, &self.mount) == (other.owner, other.index, &other.mount)
    }
}
