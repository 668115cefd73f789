//! A share of a budget that is kept for the important: the others charge the same state by a [smaller](Quota::keeping) quota.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tollgate_core::{Algorithm, Capability, Concurrent, Quota, Receipt};

use crate::model::Dice;
use crate::{Budget, Subject, align, every_algorithm};

const SECOND: Duration = Duration::from_secs(1);

/// The units of a full budget, and what each class leaves of them, the most important first.
const WHOLE: u64 = 20;
const KEPT: [u64; 3] = [0, 4, 9];

/// Random sequences of each kind of quota, and the steps of each.
const SEQUENCES: u64 = 5;
const STEPS: usize = 150;

/// Each algorithm, and limits on how many at once if the backend has them.
fn every_kind(subject: &dyn Subject) -> Vec<Quota> {
    let mut quotas = every_algorithm(WHOLE, SECOND);
    if subject
        .backend()
        .admin()
        .capabilities()
        .has(Capability::Held)
    {
        quotas.push(Concurrent::at_most(WHOLE).into());
    }
    quotas
}

/// One key's budget as each class sees it.
fn classes(policy: &str, quota: Quota) -> [Budget; 3] {
    KEPT.map(|kept| Budget {
        quota: quota.keeping(kept),
        ..Budget::of(policy, quota)
    })
}

/// Those of a class pass while what is kept from it is left, and those before it may use that.
pub async fn a_class_leaves_what_is_kept_and_the_important_may_use_it(subject: &dyn Subject) {
    for quota in every_kind(subject) {
        let [critical, normal, other] = classes("kept", quota);
        align(subject, SECOND * 4).await;

        let taken = other.take(subject, 11).await;

        assert!(taken.is_admitted(), "{quota}");
        assert_eq!(taken.verdicts()[0].remaining(), 0, "{quota}");
        assert!(!other.take(subject, 1).await.is_admitted(), "{quota}");
        assert!(normal.take(subject, 5).await.is_admitted(), "{quota}");
        assert!(!normal.take(subject, 1).await.is_admitted(), "{quota}");
        assert_eq!(critical.remaining(subject).await, 4, "{quota}");
        assert!(critical.take(subject, 4).await.is_admitted(), "{quota}");
        assert!(!critical.take(subject, 1).await.is_admitted(), "{quota}");
        let dear = other.take(subject, 12).await;
        assert!(dear.verdicts()[0].never_passes(), "{quota}: {dear:?}");
    }
}

/// Charges, credits and debits of every class at random times. Beside them stands the net history, which the algorithm's own
/// definition is applied to: whenever a charge passes, what it had to leave is left.
pub async fn whatever_is_credited_no_class_spends_what_is_kept_from_it(subject: &dyn Subject) {
    for (index, quota) in every_kind(subject).into_iter().enumerate() {
        for sequence in 0..SEQUENCES {
            let seed = RandomState::new().hash_one((index, sequence));
            no_class_spends_what_is_kept_from_it(subject, quota, seed).await;
        }
    }
}

async fn no_class_spends_what_is_kept_from_it(subject: &dyn Subject, quota: Quota, seed: u64) {
    let backend = subject.backend();
    let mut dice = Dice(seed);
    // A name of this run alone, because a server may remember earlier ones.
    let budgets = classes(&format!("shares-{seed}"), quota);
    let mut history = History::of(quota);
    let mut receipts: Vec<(usize, Receipt)> = Vec::new();

    for step in 0..STEPS {
        let context = format!("{quota}, seed {seed}, step {step}");
        let pauses = [0, 0, 0, 1, 1000, 70_000, 300_000, 2_500_000];
        // A lease of what is held runs by this time, and is renewed by that of the process.
        let most = if quota.is_held() { 5 } else { pauses.len() };
        let pause = pauses[dice.below(most)];
        let pause = Duration::from_micros(pause + dice.upto(3));
        subject.advance(pause).await;

        let class = dice.below(KEPT.len());
        let (kept, budget) = (KEPT[class], &budgets[class]);
        let cost = [1, 1, 1, 2, 3, 5, 11, 15][dice.below(8)];
        let left = budgets[0].remaining(subject).await;
        let decision = budget.take(subject, cost).await;
        let verdict = decision.verdicts()[0];
        let now = decision.at().as_micros();

        // The important see the whole budget. The others are told what is left of it above their share.
        assert_eq!(decision.is_admitted(), left >= kept + cost, "{context}");
        let taken = if decision.is_admitted() { cost } else { 0 };
        let remains = left.saturating_sub(kept) - taken;
        assert_eq!(verdict.remaining(), remains, "{context}");
        assert_eq!(
            budgets[0].remaining(subject).await,
            left - taken,
            "{context}"
        );
        if decision.is_admitted() {
            history.charge(now, cost);
            assert!(history.leaves(kept, now), "{context}: {history:?}");
            let charges = [budget.charge(cost)];
            let receipt = decision.receipts(&charges).next().unwrap();
            receipts.push((history.0.len() - 1, receipt));
        } else if let Some(wait) = verdict.retry_after().filter(|_| dice.below(4) == 0) {
            subject.advance(wait - Duration::from_micros(1)).await;
            let early = budget.take(subject, cost).await;
            assert!(!early.is_admitted(), "{context}: {wait:?}");
            subject.advance(Duration::from_micros(1)).await;
            let punctual = budget.take(subject, cost).await;
            assert!(punctual.is_admitted(), "{context}: {wait:?}");
            history.charge(punctual.at().as_micros(), cost);
        }

        if !receipts.is_empty() && dice.below(3) == 0 {
            let (entry, receipt) = receipts.swap_remove(dice.below(receipts.len()));
            let n = dice.upto(6);
            if dice.below(4) > 0 {
                history.refund(entry, n);
                backend.refund(receipt, n);
            } else if !quota.is_held() {
                let now = budgets[0].take(subject, 0).await.at().as_micros();
                history.charge(now, n);
                backend.debit(&receipt, n);
            }
            subject.settle().await;
        }
    }
}

/// The times and amounts of all charges of one key, net of what was given back.
#[derive(Debug)]
struct History(Vec<(u64, u64)>, Quota);

impl History {
    fn of(quota: Quota) -> Self {
        Self(Vec::new(), quota)
    }

    fn charge(&mut self, at: u64, cost: u64) {
        self.0.push((at, cost));
    }

    /// No more comes back than this, and perhaps less: what has drained since is gone.
    fn refund(&mut self, entry: usize, n: u64) {
        let (_, amount) = &mut self.0[entry];
        *amount = amount.saturating_sub(n);
    }

    /// The sum of the charges at these times.
    fn sum(&self, counts: impl Fn(u64) -> bool) -> u128 {
        let counting = self.0.iter().filter(|(at, _)| counts(*at));
        counting.map(|(_, amount)| u128::from(*amount)).sum()
    }

    /// True if the history is one that a quota admits which is smaller by what is kept.
    fn leaves(&self, kept: u64, now: u64) -> bool {
        let quota = &self.1;
        let most = u128::from(quota.capacity() - kept);
        let period = u64::try_from(quota.period().as_micros()).unwrap();
        match quota.algorithm() {
            // Over any time the burst and what drained meanwhile.
            Algorithm::Gcra => self.0.iter().all(|(from, _)| {
                let spent = self.sum(|at| at >= *from) * u128::from(period);
                let drained = u128::from(quota.limit()) * u128::from(now - from);
                spent <= most * u128::from(period) + drained
            }),
            Algorithm::FixedWindow { offset } => {
                let offset = u64::try_from(offset.as_micros()).unwrap();
                let window = |at: u64| (at + period - offset) / period;
                self.sum(|at| window(at) == window(now)) <= most
            }
            Algorithm::SlidingWindow => {
                let window = |at: u64| at / period;
                let previous = self.sum(|at| window(at) + 1 == window(now));
                let current = self.sum(|at| window(at) == window(now));
                let left = u128::from(period - now % period);
                previous * left + current * u128::from(period) <= most * u128::from(period)
            }
            Algorithm::RollingWindow { buckets } => {
                let bucket = |at: u64| at / (period / u64::from(buckets));
                self.sum(|at| bucket(at) + u64::from(buckets) > bucket(now)) <= most
            }
            Algorithm::SlidingLog => self.sum(|at| at + period > now) <= most,
            // Over any time the burst and the refills that came meanwhile.
            Algorithm::IntervalRefill { offset } => self.0.iter().all(|(from, _)| {
                let offset = u64::try_from(offset.as_micros()).unwrap();
                let window = |at: u64| (at + period - offset) / period;
                let refills = u128::from(window(now) - window(*from));
                self.sum(|at| at >= *from) <= most + refills * u128::from(quota.limit())
            }),
            _ => self.sum(|_| true) <= most,
        }
    }
}
