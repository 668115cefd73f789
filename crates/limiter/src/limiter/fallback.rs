//! The outcome for a request while the backend cannot decide.

use tollgate_core::{BackendError, Decision, Timestamp, Verdict};

use super::Plan;
use super::plan::Entries;

/// The failure rule's outcome for a request.
#[derive(Debug)]
pub enum Fallback {
    /// Some policies of the plan were decided.
    Decide(Box<DecidedPart>),
    /// Every policy says that the request passes.
    Pass(BackendError),
    /// A policy says that the request is refused.
    Refuse(BackendError),
}

/// The policies that were decided while the others could not be.
#[derive(Debug)]
pub struct DecidedPart {
    /// Their plan.
    pub plan: Plan<'static>,
    /// The decision on them.
    pub decision: Decision,
    /// The policies that budgets of this process decided in the backend's place.
    pub local: LocalPayers,
}

/// The policies of a plan, by their places in it, that budgets of this process decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalPayers(u32);

impl LocalPayers {
    /// The backend decided about all.
    pub const NONE: Self = Self(0);
    /// This process decided about all.
    pub const ALL: Self = Self(u32::MAX);

    #[inline]
    pub(super) const fn has(self, place: usize) -> bool {
        self.0 >> place & 1 == 1
    }
}

impl DecidedPart {
    /// The policies with verdicts that are known, and the others.
    pub(super) fn of(
        entries: Entries<'_>,
        decision: &Decision,
        is_known: fn(&Verdict) -> bool,
    ) -> (Self, Plan<'static>) {
        let (mut quotas, mut ids) = (0, entries.quotas().count());
        let mut verdicts = [Vec::new(), Vec::new()];
        let (mut decided, mut failed) = (Plan::default(), Plan::default());
        for (payer, own, _) in entries.decided(decision) {
            let of_quotas = quotas..quotas + own.len();
            let of_id = ids..ids + usize::from(payer.id().is_some());
            (quotas, ids) = (of_quotas.end, of_id.end);
            if !own.iter().all(is_known) {
                failed.push(payer.to_entry());
                continue;
            }
            decided.push(payer.to_entry());
            verdicts[0].extend(of_quotas.filter_map(|place| timed(decision, place)));
            verdicts[1].extend(of_id.filter_map(|place| timed(decision, place)));
        }
        let decided = Self {
            plan: decided,
            decision: Decision::apart(decision.is_admitted(), verdicts.concat()),
            local: LocalPayers::NONE,
        };
        (decided, failed)
    }

    /// Both parts of a request that each let it pass.
    pub(super) fn and(self, other: Self) -> Self {
        let before = u32::try_from(self.plan.entries().iter().count()).unwrap_or(u32::MAX);
        let verdicts = [&self, &other].map(|part| {
            let places = 0..part.decision.verdicts().len();
            let mut quotas: Vec<_> = places
                .filter_map(|place| timed(&part.decision, place))
                .collect();
            let ids = quotas.split_off(part.plan.entries().quotas().count());
            [quotas, ids]
        });
        let [[ours, our_ids], [theirs, their_ids]] = verdicts;
        let ours_alone = !u32::MAX.checked_shl(before).unwrap_or(0);
        let behind = other.local.0.checked_shl(before).unwrap_or(0);
        Self {
            plan: self.plan.and(other.plan),
            // The ids stand behind the quotas.
            decision: Decision::apart(true, [ours, theirs, our_ids, their_ids].concat()),
            local: LocalPayers(self.local.0 & ours_alone | behind),
        }
    }
}

fn timed(decision: &Decision, place: usize) -> Option<(Timestamp, Verdict)> {
    let verdict = decision.verdicts().get(place)?;
    Some((decision.verdict_at(place), *verdict))
}
