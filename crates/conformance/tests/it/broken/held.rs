//! Defects of limits on how many at once.

use tollgate_core::{
    Answer, Backend, Call, Charge, Decision, Mode, Receipt, Scope, Snapshot, Unit,
};

use crate::broken::{Defect, Sound, are_found, at_once};

/// The end of a request is lost.
#[derive(Debug)]
struct PlaceNeverGivenBack;

impl Defect for PlaceNeverGivenBack {
    fn refund(&self, sound: &Sound, receipt: Receipt, n: u64) {
        if !receipt.quota().is_held() {
            sound.backend.refund(receipt, n);
        }
    }
}

/// The end of a request gives back as much as it says, and not as much as its receipt has.
#[derive(Debug)]
struct MoreGivenBackThanTaken;

impl Defect for MoreGivenBackThanTaken {
    fn refund(&self, sound: &Sound, _receipt: Receipt, n: u64) {
        sound.change(Unit::Held, |state| {
            if let Snapshot::Held { held, .. } = state {
                *held = held.saturating_sub(n);
            }
        });
    }
}

/// An admitted request is counted with its call, and again when it begins.
#[derive(Debug)]
struct PlaceCountedTwice;

impl Defect for PlaceCountedTwice {
    fn decide(&self, sound: &Sound, charges: &[Charge<'_>]) -> Answer<Decision> {
        let said = at_once(sound.backend.decide(Call::of(charges)));
        let held = charges.iter().filter(|charge| charge.quota.is_held());
        let again: Vec<_> = held.copied().collect();
        if said.is_admitted() && !again.is_empty() {
            let _again = sound.backend.decide(Call::of(&again));
        }
        Answer::now(Ok(said))
    }
}

/// A lease that is not renewed: others get what has been held for five seconds.
#[derive(Debug)]
struct PlaceRunsOut;

impl Defect for PlaceRunsOut {
    fn decide(&self, sound: &Sound, charges: &[Charge<'_>]) -> Answer<Decision> {
        let now = sound.now().as_micros();
        sound.change(Unit::Held, |state| {
            if let Snapshot::Held {
                held,
                generation_us,
            } = state
                && now - *generation_us > 5_000_000
            {
                *held = 0;
            }
        });
        sound.backend.decide(Call::of(charges))
    }
}

/// A request that another limit refuses holds its place.
#[derive(Debug)]
struct RefusedRequestHolds;

impl Defect for RefusedRequestHolds {
    fn decide(&self, sound: &Sound, charges: &[Charge<'_>]) -> Answer<Decision> {
        sound.decide_changed(charges, |charge| {
            let holds = charge.quota.is_held() && charge.mode == Mode::Enforce;
            let mode = if holds { Mode::Shadow } else { charge.mode };
            Charge { mode, ..charge }
        })
    }
}

/// A debit, which has no receipt, holds more places.
#[derive(Debug)]
struct DebitHolds;

impl Defect for DebitHolds {
    fn debit(&self, sound: &Sound, _receipt: &Receipt, n: u64) {
        sound.change(Unit::Held, |state| {
            if let Snapshot::Held { held, .. } = state {
                *held += n;
            }
        });
    }
}

/// Each limit has a count of its own.
#[derive(Debug)]
struct LimitsCountApart;

impl Defect for LimitsCountApart {
    fn decide(&self, sound: &Sound, charges: &[Charge<'_>]) -> Answer<Decision> {
        sound.decide_changed(charges, |charge| {
            let name = format!("{}-{}", charge.scope.policy(), charge.quota.limit());
            Charge {
                scope: Scope::of(&name, charge.scope.slot(), charge.quota),
                ..charge
            }
        })
    }
}

#[tokio::test]
async fn each_defect_of_a_limit_at_once_fails_the_rule_that_it_breaks() {
    are_found! {
        PlaceNeverGivenBack => held::a_release_gives_back_what_was_taken_and_no_more,
        PlaceNeverGivenBack => held::a_shadow_holds_and_a_probe_does_not,
        MoreGivenBackThanTaken => held::a_release_gives_back_what_was_taken_and_no_more,
        PlaceCountedTwice => held::a_limit_at_once_admits_what_it_holds_and_not_one_more,
        PlaceRunsOut => held::what_is_held_stays_held_as_time_passes,
        RefusedRequestHolds => held::what_is_held_and_a_quota_are_taken_together_or_not_at_all,
        DebitHolds => held::a_debit_of_what_is_held_does_nothing,
        LimitsCountApart => held::another_limit_at_once_counts_what_is_held,
    }
}
