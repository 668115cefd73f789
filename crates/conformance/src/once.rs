//! Charges that count once. A backend that does not say that it [can](Capability::Once) passes these tests unasked.

use std::time::Duration;

use tollgate_core::{Algorithm, Capability, Charge, Decision, Key, Mode, Once, Quota, Scope};

use crate::{Budget, Subject, decide};

const SECOND: Duration = Duration::from_secs(1);
const MICROSECOND: Duration = Duration::from_micros(1);

/// A policy with a quota, and with ids that are remembered for 30 seconds and have two replays.
struct Orders {
    budget: Budget,
    scope: Scope,
    once: Quota,
}

impl Orders {
    fn of(policy: &str, quota: Quota) -> Self {
        let (policy, once) = (format!("once-{policy}"), Quota::from(Once::default()));
        Self {
            budget: Budget::of(&policy, quota),
            scope: Scope::of(&policy, 0, &once),
            once,
        }
    }

    /// The caller's id of this name. A backend with states in several places may keep it beside the caller's budgets.
    fn id(&self, name: &str) -> Key {
        Key::tuple([&self.budget.key, &Key::from(name)])
    }

    fn charges<'a>(&'a self, id: &'a Key, mode: Mode) -> [Charge<'a>; 2] {
        let charge = self.budget.charge_in(mode, 1);
        let id = Charge {
            scope: self.scope,
            quota: &self.once,
            key: id,
            ..charge
        };
        [charge, id]
    }

    async fn ask_in(&self, subject: &dyn Subject, id: &str, mode: Mode) -> Decision {
        let id = self.id(id);
        decide(subject, &self.charges(&id, mode)).await
    }

    async fn ask(&self, subject: &dyn Subject, id: &str) -> Decision {
        self.ask_in(subject, id, Mode::Enforce).await
    }

    /// The rest after an admitted request with this id.
    async fn left(&self, subject: &dyn Subject, id: &str) -> u64 {
        let decision = self.ask(subject, id).await;
        assert!(decision.is_admitted());
        decision.verdicts()[0].remaining()
    }
}

fn can_count_once(subject: &dyn Subject) -> bool {
    subject
        .backend()
        .admin()
        .capabilities()
        .has(Capability::Once)
}

/// Two replays are free, and the next request is charged: a constant id does not get around a limit.
pub async fn every_third_request_with_one_id_is_charged(subject: &dyn Subject) {
    if !can_count_once(subject) {
        return;
    }
    for quota in crate::every_algorithm(10, SECOND * 3_600) {
        let orders = Orders::of("constant", quota);
        orders.budget.take(subject, 0).await;
        for left in [9, 9, 9, 8, 8, 8, 7] {
            assert_eq!(orders.left(subject, "order-7").await, left, "{quota}");
        }
        assert_eq!(orders.left(subject, "order-8").await, 6, "{quota}");
        let reset = [(orders.budget.scope, orders.budget.key.clone())];
        let ids = ["order-7", "order-8"].map(|id| (orders.scope, orders.id(id)));
        for (scope, key) in reset.iter().chain(&ids) {
            subject.backend().admin().reset(*scope, key).await.unwrap();
        }
    }
}

/// An id is remembered until its life is over, to the microsecond.
pub async fn an_id_is_forgotten_after_its_life(subject: &dyn Subject) {
    if !can_count_once(subject) {
        return;
    }
    let orders = Orders::of("life", Quota::per_day(10));
    // No end may be rounded to a millisecond.
    subject.advance(MICROSECOND * 1_234_567).await;
    assert_eq!(orders.left(subject, "a").await, 9);
    subject.advance(SECOND * 30 - MICROSECOND).await;
    assert_eq!(orders.left(subject, "a").await, 9);
    subject.advance(MICROSECOND).await;
    assert_eq!(orders.left(subject, "a").await, 8);
}

/// A replay passes an empty budget. A denied request is not remembered, and neither is a question.
pub async fn an_admission_is_remembered_and_a_denial_is_not(subject: &dyn Subject) {
    if !can_count_once(subject) {
        return;
    }
    let orders = Orders::of("denied", Quota::per_day(1));
    let probe = orders.ask_in(subject, "first", Mode::Probe).await;
    assert!(probe.verdicts()[0].is_allowed());
    assert_eq!(orders.left(subject, "first").await, 0);
    for _ in 0..2 {
        assert!(!orders.ask(subject, "late").await.is_admitted());
    }

    let replay = orders.ask(subject, "first").await;

    assert!(replay.is_admitted());
    assert_eq!(
        replay
            .receipts(&orders.charges(&orders.id("first"), Mode::Enforce))
            .count(),
        0
    );
    assert_eq!(orders.left(subject, "first").await, 0);
    assert!(!orders.ask(subject, "first").await.is_admitted());
}

/// Other policies are charged by a replay as ever, and a request that they deny is not admitted.
pub async fn an_id_spares_the_budgets_of_its_own_policy_alone(subject: &dyn Subject) {
    if !can_count_once(subject) {
        return;
    }
    let orders = Orders::of("own", Quota::per_day(10));
    let other = Budget::of("once-other", Quota::per_day(4));
    let id = orders.id("a");
    let [own, id] = orders.charges(&id, Mode::Enforce);
    for left in [(9, 3), (9, 2), (9, 1), (8, 0)] {
        let decision = decide(subject, &[own, other.charge(1), id]).await;
        assert!(decision.is_admitted());
        let verdicts = decision.verdicts();
        assert_eq!((verdicts[0].remaining(), verdicts[1].remaining()), left);
    }
    assert!(
        !decide(subject, &[own, other.charge(1), id])
            .await
            .is_admitted()
    );
    assert_eq!(orders.left(subject, "a").await, 8);
}

/// An id is that of another request if it comes from another caller, or under another policy.
pub async fn an_id_is_remembered_for_its_own_policy_and_caller(subject: &dyn Subject) {
    if !can_count_once(subject) {
        return;
    }
    let alice = Orders::of("names", Quota::per_day(10));
    let exports = Orders::of("names-exports", Quota::per_day(10));
    let mut bob = Orders::of("names", Quota::per_day(10));
    bob.budget = bob.budget.for_key("bob");
    assert_eq!(alice.left(subject, "a").await, 9);
    assert_eq!(alice.left(subject, "b").await, 8);

    for others in [&exports, &bob] {
        assert_eq!(others.left(subject, "a").await, 9);
        assert_eq!(others.left(subject, "b").await, 8);
        assert_eq!(others.left(subject, "a").await, 8);
    }
    assert_eq!(alice.left(subject, "a").await, 8);
}

/// Both charges of an admission come back whole, and then a request with its id is charged anew. An early receipt changes nothing.
pub async fn a_charge_that_is_given_back_is_replayed_by_none(subject: &dyn Subject) {
    if !can_count_once(subject) {
        return;
    }
    let orders = Orders::of("credit", Quota::per_day(10));
    let hourly = Budget::of(
        "once-credit",
        Quota::per_hour(20).using(Algorithm::SlidingLog),
    )
    .for_key("alice");
    let id = orders.id("a");
    let [daily, id] = orders.charges(&id, Mode::Enforce);
    let charges = [daily, hourly.charge(1), id];
    let first = decide(subject, &charges).await;
    let early = first.receipts(&charges).next().unwrap();
    for receipt in first.receipts(&charges) {
        subject.backend().refund(receipt, 1);
    }
    subject.settle().await;
    subject.advance(MICROSECOND).await;
    let other = orders.ask_in(subject, "b", Mode::Probe).await;
    assert_eq!(other.verdicts()[0].remaining(), 10);

    let again = decide(subject, &charges).await;

    let left = |decision: &Decision| {
        let verdicts = decision.verdicts();
        (verdicts[0].remaining(), verdicts[1].remaining())
    };
    assert_eq!(left(&again), (9, 19));
    subject.backend().refund(early, 1);
    subject.settle().await;
    assert_eq!(left(&decide(subject, &charges).await), (9, 19));
}

/// Once a replay has passed on a charge it stays, whether the id is still remembered or not, and however often it was charged since.
pub async fn a_charge_that_was_replayed_is_not_given_back(subject: &dyn Subject) {
    if !can_count_once(subject) {
        return;
    }
    for quota in crate::every_algorithm(10, SECOND * 3_600) {
        let orders = Orders::of("kept", quota);
        orders.budget.take(subject, 0).await;
        for (replays, wait, left) in [
            (1, Duration::ZERO, 9),
            (2, Duration::ZERO, 8),
            (1, SECOND * 30, 7),
            (0, SECOND * 30, 6),
        ] {
            let name = format!("{replays} and {wait:?}");
            let key = orders.id(&name);
            let charges = orders.charges(&key, Mode::Enforce);
            let first = orders.ask(subject, &name).await;
            for _ in 0..replays {
                assert_eq!(orders.left(subject, &name).await, left, "{quota}");
            }
            subject.advance(wait).await;
            for receipt in first.receipts(&charges) {
                subject.backend().refund(receipt, 1);
            }
            subject.settle().await;
            let probe = orders.ask_in(subject, "another", Mode::Probe).await;
            assert_eq!(probe.verdicts()[0].remaining(), left, "{quota}: {name}");
        }
        let reset = subject
            .backend()
            .admin()
            .reset(orders.budget.scope, &orders.budget.key);
        reset.await.unwrap();
    }
}

/// A part of a charge comes back as the whole does: not once it was replayed, and then no replay passes.
pub async fn a_part_of_a_charge_comes_back_as_the_whole_does(subject: &dyn Subject) {
    if !can_count_once(subject) {
        return;
    }
    let orders = Orders::of("part", Quota::per_day(20));
    let mut left = 20;
    for (name, is_replayed) in [("a", true), ("b", false)] {
        let key = orders.id(name);
        let [charge, id] = orders.charges(&key, Mode::Enforce);
        let charges = [Charge { cost: 5, ..charge }, id];
        let first = decide(subject, &charges).await;
        left -= 5;
        if is_replayed {
            let replay = decide(subject, &charges).await;
            assert_eq!(replay.verdicts()[0].remaining(), left);
        }

        for receipt in first.receipts(&charges) {
            subject.backend().refund(receipt, 4);
        }
        subject.settle().await;

        left += if is_replayed { 0 } else { 4 };
        let probe = orders.ask_in(subject, "another", Mode::Probe).await;
        assert_eq!(probe.verdicts()[0].remaining(), left, "{name}");
        left -= if is_replayed { 0 } else { 5 };
        let next = decide(subject, &charges).await;
        assert_eq!(next.verdicts()[0].remaining(), left, "{name}");
    }
}

/// On trial an id is remembered if its policy's charges pass.
pub async fn an_id_on_trial_counts_once(subject: &dyn Subject) {
    if !can_count_once(subject) {
        return;
    }
    let orders = Orders::of("trial", Quota::per_day(2));
    for left in [1, 1, 1, 0] {
        let decision = orders.ask_in(subject, "a", Mode::Shadow).await;
        assert!(decision.is_admitted());
        assert_eq!(decision.verdicts()[0].remaining(), left);
    }
    for _ in 0..2 {
        let decision = orders.ask_in(subject, "b", Mode::Shadow).await;
        assert!(decision.verdicts()[0].is_denied());
    }
}
