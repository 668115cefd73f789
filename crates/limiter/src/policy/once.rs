//! Ids beside the quotas of a policy: a request that comes again is charged once.

use tollgate_core::{KeyKind, Once, Quota, Scope};

use super::Policy;
use crate::Key;
use crate::key::{self, KeyExtractor};

impl Policy {
    /// Sets the terms by which requests and [checks](crate::Check::id) with an id are charged once: see [`Once`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Once, Policy, Quota};
    ///
    /// # fn main() -> Result<(), tollgate::QuotaError> {
    /// // Five minutes, and one replay.
    /// let once = Once::try_within(Duration::from_secs(300))?.try_replays(1)?;
    /// let orders = Policy::new("orders", Quota::per_minute(10)).once(once);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn once(mut self, once: Once) -> Self {
        let quota = Quota::from(once);
        let scope = Scope::of(&self.name, 0, &quota);
        let by = self.once.and_then(|once| once.by);
        self.once = Some(PolicyOnce { quota, scope, by });
        self
    }

    /// Charges requests with this id once: a retry that a client or a proxy sends gets through as its first admission did, and
    /// takes nothing. Denials are not remembered. A request without an id, or with an ambiguous one, is charged as ever.
    ///
    /// An id belongs to one caller and one cost: with another key or cost it is another id. It is remembered for 30 seconds, and
    /// two replays are free, unless [`once`](Self::once) says otherwise; then the request is charged again. A caller with one id
    /// for ever pays for every third request.
    ///
    /// ```
    /// use tollgate::key::Header;
    /// use tollgate::{Policy, Quota};
    ///
    /// let orders = Policy::new("orders", Quota::per_minute(10)).once_by(Header::new("idempotency-key"));
    /// ```
    ///
    /// Each request, retry or not, holds its own place under a limit on [how many at once](crate::Concurrent).
    #[must_use]
    pub fn once_by(self, id: impl KeyExtractor) -> Self {
        self.with_ids(key::Source::new(id))
    }

    pub(crate) fn with_ids(self, by: key::Source) -> Self {
        let terms = self.once.as_ref().and_then(|once| once.quota.once());
        let mut this = self.once(terms.unwrap_or_default());
        if let Some(once) = &mut this.once {
            once.by = Some(by);
        }
        this
    }

    /// The id's name in the backend: of this caller, and for this cost. The caller stands first, because a backend may keep the id
    /// beside the budgets of the caller. A name that would be too long to hold all of that holds the caller and a digest.
    pub(crate) fn id_of(caller: &Key, id: &Key, cost: u64) -> Key {
        let name = Key::tuple([caller, id, &Key::from(cost)]).compact();
        if name.kind() == KeyKind::Tuple {
            return name;
        }
        Key::tuple([caller, &name]).compact()
    }
}

/// The terms of ids under a policy, and where a request has its id.
#[derive(Clone)]
pub(crate) struct PolicyOnce {
    pub(crate) quota: Quota,
    pub(crate) scope: Scope,
    pub(crate) by: Option<key::Source>,
}
