//! The lease of a policy: this process spends blocks of its callers' budgets by itself.

use tollgate_core::Lease;

use super::Policy;

impl Policy {
    /// Leases blocks of its callers' budgets from a shared backend, and spends them in this process: see [`Lease`]. A backend in
    /// memory has nothing to lease, and decides as ever.
    ///
    /// A request whose block has enough is decided at memory's speed, without a call, also while the backend fails. Every other is
    /// decided by the backend, together with what else it is charged: all or nothing, as ever. No request waits for a block.
    ///
    /// A leased decision tells as what [remains](crate::Verdict::remaining) what this process has left of the budget, so that there
    /// may be more, and the time of its block.
    ///
    /// ```
    /// use tollgate::key::Header;
    /// use tollgate::{Lease, Policy, Quota};
    ///
    /// // A few callers have most of the requests.
    /// let api = Policy::new("api", Quota::per_second(5_000)).key(Header::new("x-api-key")).lease(Lease::up_to(500));
    /// ```
    ///
    /// # Errors
    ///
    /// When the limiter is built: if one of the quotas, in whatever tier, cannot be leased. Sliding windows, rolling windows and
    /// logs cannot, because a block is counted when it is leased and spent later, so that twice the limit could pass in a period.
    /// Places, waits, warm-ups, bans and ids need the backend for each request. A request that costs more than half a block would
    /// never find one.
    #[must_use]
    pub fn lease(mut self, lease: Lease) -> Self {
        self.lease = Some(lease);
        self
    }

    /// The reason why the policy cannot be leased by its terms; `None` if it can, or is not.
    pub(crate) fn misfit_of_lease(&self) -> Option<String> {
        let lease = self.lease?;
        if self.ban_limit().is_some() {
            return Some("each request asks the backend whether the caller is banned".to_owned());
        }
        if self.once.is_some() {
            return Some("each request asks the backend whether its id is known".to_owned());
        }
        if let Some(reason) = self.quotas().find_map(|quota| lease.misfit(quota)) {
            return Some(reason);
        }
        let cost = self.cost.fixed().unwrap_or(1);
        (cost.saturating_mul(2) > lease.most()).then(|| {
            format!(
                "{lease}: a request costs {cost}, so that a block would serve one; at least {}",
                cost.saturating_mul(2)
            )
        })
    }
}
