//! Identities that a policy exempts or refuses.

use std::sync::Arc;

use http::StatusCode;

use super::{OnMissing, Policy};
use crate::Key;
use crate::key::{KeyList, KeyShape, ReadList};

/// The identities that a policy exempts and those that it refuses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lists {
    exempt: Vec<ReadList>,
    blocked: Vec<(ReadList, Block)>,
}

/// The way to refuse an identity on a block list.
///
/// ```
/// use tollgate::Block;
///
/// assert_eq!(Block::Forbidden.status(), 403);
/// assert_eq!(Block::TooManyRequests.status(), 429);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "kebab-case")
)]
pub enum Block {
    /// 403: the caller has no business here, and need not come back.
    Forbidden,
    /// 429 without `Retry-After`: the caller has behaved badly, and the block has no stated end. For a ban, the default: 429 with
    /// the end of the ban.
    #[default]
    TooManyRequests,
}

/// The entry for an identity in a policy's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listing {
    Nowhere,
    Exempt,
    Blocked(Block),
}

impl Block {
    /// The status of the answer.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
        }
    }
}

impl Policy {
    /// Exempts the identities on this list, which may change while it is in use. An exemption takes precedence over a
    /// [block](Self::block_keys).
    ///
    /// ```
    /// use tollgate::key::{Header, KeyList};
    /// use tollgate::{Policy, Quota};
    ///
    /// let partners = KeyList::from_iter(["partner-a", "partner-b"]);
    /// let api = Policy::new("api", Quota::per_second(10)).key(Header::new("x-api-key")).exempt_keys(&partners);
    /// ```
    #[must_use]
    pub fn exempt_keys(mut self, list: impl Into<KeyList>) -> Self {
        self.lists_mut().exempt.push(ReadList::of(list.into()));
        self
    }

    /// Refuses the identities on this list, whatever is left of their budgets, and charges nothing. The list may change while it
    /// is in use. A policy on trial refuses no request.
    ///
    /// An ambiguous identity ([`KeyMissing::ambiguous`](crate::key::KeyMissing::ambiguous)) is on no list: a request with two
    /// cookies of one name, one of them blocked, spends the shared budget. [`OnMissing::Deny`](crate::OnMissing::Deny) refuses
    /// it.
    ///
    /// ```
    /// use tollgate::key::{Header, KeyList};
    /// use tollgate::{Block, Policy, Quota};
    ///
    /// let leaked = KeyList::new();
    /// let api = Policy::new("api", Quota::per_second(10))
    ///     .key(Header::new("x-api-key"))
    ///     .block_keys(&leaked, Block::Forbidden);
    ///
    /// // A key was found in a public repository.
    /// leaked.insert("key-4711");
    /// ```
    #[must_use]
    pub fn block_keys(mut self, list: impl Into<KeyList>, how: Block) -> Self {
        let list = ReadList::of(list.into());
        self.lists_mut().blocked.push((list, how));
        self
    }

    #[inline]
    pub(crate) fn listed(&self, key: &Key) -> Listing {
        match &self.lists {
            None => Listing::Nowhere,
            Some(lists) => lists.find(&self.shape, key),
        }
    }

    /// The first result of `find` in the lists as they are now.
    pub(crate) fn find_listed<T>(
        &self,
        find: impl Fn((&'static str, &Key)) -> Option<T>,
    ) -> Option<T> {
        let lists = self.lists.as_ref()?;
        let exempt = lists.exempt.iter().map(|list| ("exempt_keys", &list.list));
        let blocked = lists
            .blocked
            .iter()
            .map(|(list, _)| ("block_keys", &list.list));
        let mut lists = exempt.chain(blocked);
        lists.find_map(|(place, list)| list.find_map(|key| find((place, key))))
    }

    /// The identities that it does not charge, and those that it refuses, as the lists are now.
    pub(super) fn listed_keys(&self) -> (Vec<Key>, Vec<(Key, Block)>) {
        let (mut exempt, mut blocked) = (Vec::new(), Vec::new());
        for list in self.lists.iter().flat_map(|lists| &lists.exempt) {
            exempt.extend(list.keys(&self.shape));
        }
        for (list, how) in self.lists.iter().flat_map(|lists| &lists.blocked) {
            blocked.extend(list.keys(&self.shape).into_iter().map(|key| (key, *how)));
        }
        (exempt, blocked)
    }

    /// Tells the operator that callers which the policy refuses may pass without an identity: a body of another content type, a doubled
    /// header.
    pub(crate) fn warn_of_unclear_callers(&self) {
        let lists = self.lists.as_deref();
        let refuses = lists.is_some_and(|lists| !lists.blocked.is_empty())
            || self.tiers.iter().any(|tiers| tiers.refuse_some());
        let are_known = self.on_missing == OnMissing::Deny || self.shape.is_always_known();
        if refuses && !are_known && !self.shadow {
            tracing::warn!(
                policy = &*self.name,
                "a caller that a policy refuses may pass without an identity: set `on_missing` to `Deny`, and requests without one, or \
                 with an unclear one, are refused"
            );
        }
    }

    fn lists_mut(&mut self) -> &mut Lists {
        Arc::make_mut(self.lists.get_or_insert_default())
    }
}

impl Lists {
    fn find(&self, shape: &KeyShape, key: &Key) -> Listing {
        if self.exempt.iter().any(|list| list.contains(shape, key)) {
            return Listing::Exempt;
        }
        let mut blocked = self.blocked.iter();
        match blocked.find(|(list, _)| list.contains(shape, key)) {
            Some((_, how)) => Listing::Blocked(*how),
            None => Listing::Nowhere,
        }
    }
}
