//! Charges that wait for their turn. A backend that does not say that it [can](Capability::Waits) passes these tests unasked.

use std::time::Duration;

use tollgate_core::{Capability, Charge, Decision, Mode, Quota, Receipt};

use crate::{Budget, Subject, decide};

const SECOND: Duration = Duration::from_secs(1);

/// One a second, and a wait of nine of them.
fn in_line(policy: &str, burst: u64) -> Budget {
    let quota = Quota::per_second(1).burst(burst);
    Budget::of(policy, quota.wait_up_to(SECOND * 9))
}

fn lets_wait(subject: &dyn Subject) -> bool {
    subject
        .backend()
        .admin()
        .capabilities()
        .has(Capability::Waits)
}

fn receipt(charge: &Charge<'_>, decision: &Decision) -> Receipt {
    decision.receipts(&[*charge]).next().unwrap()
}

async fn leave(subject: &dyn Subject, receipt: Receipt) {
    let cost = receipt.cost();
    subject.backend().refund(receipt, cost);
    subject.settle().await;
}

/// The wait in seconds; `None` if the charge is refused.
async fn wait(subject: &dyn Subject, line: &Budget, cost: u64) -> Option<u64> {
    let decision = line.take(subject, cost).await;
    decision.is_admitted().then(|| decision.wait().as_secs())
}

/// The burst passes at once, and one charge a second after it; a turn further away than the wait is refused, and the answer says
/// when the charge may wait.
pub async fn turns_follow_one_another_in_the_order_of_the_decisions(subject: &dyn Subject) {
    if !lets_wait(subject) {
        return;
    }
    let line = in_line("turns", 2);
    for turn in [0, 0, 1, 2] {
        assert_eq!(wait(subject, &line, 1).await, Some(turn));
    }
    assert_eq!(wait(subject, &line, 2).await, Some(4));
    subject.advance(SECOND).await;
    for turn in 4..=9 {
        assert_eq!(wait(subject, &line, 1).await, Some(turn));
    }

    let denied = line.take(subject, 1).await;

    assert!(!denied.is_admitted());
    assert_eq!(
        (denied.wait(), denied.retry_after()),
        (Duration::ZERO, Some(SECOND))
    );
    subject.advance(SECOND).await;
    assert_eq!(wait(subject, &line, 1).await, Some(9));
    // No wait makes room for more than a full budget.
    assert!(line.take(subject, 3).await.verdicts()[0].never_passes());
}

/// A caller that waits for less is refused where others wait, and nothing is reserved for it.
pub async fn a_shorter_patience_reserves_nothing(subject: &dyn Subject) {
    if !lets_wait(subject) {
        return;
    }
    let line = in_line("patience", 1);
    assert_eq!(wait(subject, &line, 1).await, Some(0));
    let quota = line.quota.waiting_at_most(SECOND / 2);
    let hasty = Budget {
        quota,
        ..line.clone()
    };
    for _ in 0..3 {
        assert_eq!(wait(subject, &hasty, 1).await, None);
    }
    assert_eq!(wait(subject, &line, 1).await, Some(1));
}

/// A place in the middle goes to the next that fits, and the last place shortens the line.
pub async fn a_charge_that_leaves_gives_its_turn_to_the_next(subject: &dyn Subject) {
    if !lets_wait(subject) {
        return;
    }
    let line = in_line("leaves", 1);
    let mut receipts = Vec::new();
    for _ in 0..5 {
        let decision = line.take(subject, 1).await;
        receipts.push(receipt(&line.charge(1), &decision));
    }
    subject.advance(SECOND / 2).await;

    leave(subject, receipts.remove(2)).await;
    let decision = line.take(subject, 1).await;
    assert_eq!(decision.wait(), SECOND * 3 / 2);
    let decision = line.take(subject, 1).await;
    assert_eq!(decision.wait(), SECOND * 9 / 2);

    leave(subject, receipt(&line.charge(1), &decision)).await;
    leave(subject, receipts.remove(3)).await;
    assert_eq!(line.take(subject, 1).await.wait(), SECOND * 7 / 2);
}

/// Requests that wait have been told when they pass. So none moves up for what a charge that has passed gives back.
pub async fn a_credit_moves_nobody_up_while_anybody_waits(subject: &dyn Subject) {
    if !lets_wait(subject) {
        return;
    }
    let line = in_line("credit", 1);
    let first = receipt(&line.charge(1), &line.take(subject, 1).await);
    for turn in 1..=3 {
        assert_eq!(wait(subject, &line, 1).await, Some(turn));
    }
    subject.advance(SECOND / 2).await;

    leave(subject, first).await;

    assert_eq!(line.take(subject, 1).await.wait(), SECOND * 7 / 2);
}

/// A charge in shadow reports its wait and keeps no request waiting; a probe reserves nothing.
pub async fn a_shadow_says_how_long_it_would_wait_and_a_probe_reserves_nothing(
    subject: &dyn Subject,
) {
    if !lets_wait(subject) {
        return;
    }
    let line = in_line("shadow", 1);
    for turn in 0..3 {
        let shadow = decide(subject, &[line.charge_in(Mode::Shadow, 1)]).await;
        assert_eq!(shadow.verdicts()[0].wait(), SECOND * turn);
        assert_eq!(shadow.wait(), Duration::ZERO);
    }
    for _ in 0..3 {
        let probe = decide(subject, &[line.charge_in(Mode::Probe, 1)]).await;
        assert_eq!(probe.verdicts()[0].wait(), SECOND * 3);
    }
}

/// The call waits for the last of its turns, and takes nothing if another quota refuses it.
pub async fn a_call_waits_for_the_last_of_its_turns_or_reserves_none(subject: &dyn Subject) {
    if !lets_wait(subject) {
        return;
    }
    let quota = Quota::per_second(2).burst(1).wait_up_to(SECOND * 9);
    let (slow, fast) = (in_line("slow", 1), Budget::of("fast", quota));
    let day = Budget::of("day", Quota::per_day(3));
    for (turn, passes) in [(0, true), (1, true), (2, true), (0, false), (0, false)] {
        let charges = [fast.charge(1), slow.charge(1), day.charge(1)];
        let decision = decide(subject, &charges).await;
        assert_eq!(decision.is_admitted(), passes);
        assert_eq!(decision.wait(), SECOND * turn);
    }
    assert_eq!(wait(subject, &slow, 1).await, Some(3));
    assert_eq!(fast.take(subject, 1).await.wait(), SECOND * 3 / 2);
}

/// A line of a thousand intervals is not taken for a clock that stepped back, whatever quota asks next.
pub async fn a_long_line_stays_as_it_is_under_another_quota(subject: &dyn Subject) {
    if !lets_wait(subject) {
        return;
    }
    let quota = Quota::per_second(1).burst(10).wait_up_to(SECOND * 1_000);
    let line = Budget::of("long", quota);
    for _ in 0..101 {
        assert!(line.take(subject, 10).await.is_admitted());
    }
    let plain = Budget {
        quota: Quota::per_second(1).burst(10),
        ..line.clone()
    };
    let denied = plain.take(subject, 1).await;
    assert_eq!(denied.retry_after(), Some(SECOND * 1_001));
    assert_eq!(line.take(subject, 1).await.retry_after(), Some(SECOND));
}
