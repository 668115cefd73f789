//! Defects of requests that wait for their turn.

use std::time::Duration;

use tollgate_core::{
    Answer, Backend, Call, Charge, Decision, Mode, Quota, Receipt, Snapshot, Unit, Verdict,
};

use crate::broken::{Defect, Sound, are_found, at_once};

/// The interval is rounded down, so that each turn comes a microsecond too early.
#[derive(Debug)]
struct WaitToldTooShort;

impl Defect for WaitToldTooShort {
    fn decide(&self, sound: &Sound, charges: &[Charge<'_>]) -> Answer<Decision> {
        sound.decide_by(charges, |charge| {
            let quota = charge.quota;
            if !quota.waits() {
                return *quota;
            }
            let period = quota.period() - Duration::from_micros(quota.limit());
            let quicker = Quota::new(quota.limit(), period).burst(quota.capacity());
            quicker.wait_up_to(quota.longest_wait())
        })
    }
}

/// A request that leaves keeps its turn.
#[derive(Debug)]
struct LeaverKeepsItsTurn;

impl Defect for LeaverKeepsItsTurn {
    fn refund(&self, sound: &Sound, receipt: Receipt, n: u64) {
        if !receipt.quota().waits() {
            sound.backend.refund(receipt, n);
        }
    }
}

/// A credit shortens the line, whether others stand behind its charge or not: two requests get one turn.
#[derive(Debug)]
struct CreditMovesOthersUp;

impl Defect for CreditMovesOthersUp {
    fn refund(&self, sound: &Sound, receipt: Receipt, n: u64) {
        let quota = receipt.quota();
        let interval_us = quota.period().as_micros() / u128::from(quota.limit());
        let freed_us = u64::try_from(interval_us).unwrap() * n;
        sound.change(Unit::Gcra, |state| {
            if let Snapshot::Gcra { full_at_us, .. } = state {
                *full_at_us -= freed_us;
            }
        });
    }
}

/// A request that is refused, because it would wait for too long, is in the line all the same.
#[derive(Debug)]
struct RefusedRequestHasATurn;

impl Defect for RefusedRequestHasATurn {
    fn decide(&self, sound: &Sound, charges: &[Charge<'_>]) -> Answer<Decision> {
        let said = at_once(sound.backend.decide(Call::of(charges)));
        for (charge, verdict) in charges.iter().zip(said.verdicts()) {
            if charge.quota.waits() && verdict.retry_after().is_some() {
                let turn = Verdict::allowed(charge, charge.cost, 0);
                let receipt = Receipt::of(charge, &turn, said.at()).unwrap();
                sound.backend.debit(&receipt, charge.cost);
            }
        }
        Answer::now(Ok(said))
    }
}

/// A question reserves a turn.
#[derive(Debug)]
struct ProbeReserves;

impl Defect for ProbeReserves {
    fn decide(&self, sound: &Sound, charges: &[Charge<'_>]) -> Answer<Decision> {
        sound.decide_changed(charges, |charge| {
            let reserves = charge.quota.waits() && charge.mode == Mode::Probe;
            let mode = if reserves { Mode::Shadow } else { charge.mode };
            Charge { mode, ..charge }
        })
    }
}

/// A call passes with the first of its turns.
#[derive(Debug)]
struct CallWaitsForItsFirstTurn;

impl Defect for CallWaitsForItsFirstTurn {
    fn decide(&self, sound: &Sound, charges: &[Charge<'_>]) -> Answer<Decision> {
        sound.backend.decide(Call::of(charges)).map(|result| {
            result.map(|said| {
                let first = said.verdicts().iter().min_by_key(|verdict| verdict.wait());
                let verdicts = said.verdicts().iter().map(|_| *first.unwrap());
                Decision::new(said.at(), said.is_admitted(), verdicts)
            })
        })
    }
}

/// A state that lies far ahead is taken for one from before the clock stepped back.
#[derive(Debug)]
struct LongLineForgotten;

impl Defect for LongLineForgotten {
    fn decide(&self, sound: &Sound, charges: &[Charge<'_>]) -> Answer<Decision> {
        let furthest_us = sound.now().as_micros() + 100_000_000;
        sound.change(Unit::Gcra, |state| {
            if let Snapshot::Gcra { full_at_us, .. } = state {
                *full_at_us = furthest_us.min(*full_at_us);
            }
        });
        sound.backend.decide(Call::of(charges))
    }
}

#[tokio::test]
async fn each_defect_of_waiting_fails_the_rule_that_it_breaks() {
    are_found! {
        WaitToldTooShort => waiting::turns_follow_one_another_in_the_order_of_the_decisions,
        LeaverKeepsItsTurn => waiting::a_charge_that_leaves_gives_its_turn_to_the_next,
        CreditMovesOthersUp => waiting::a_charge_that_leaves_gives_its_turn_to_the_next,
        CreditMovesOthersUp => waiting::a_credit_moves_nobody_up_while_anybody_waits,
        RefusedRequestHasATurn => waiting::a_shorter_patience_reserves_nothing,
        ProbeReserves =>
            waiting::a_shadow_says_how_long_it_would_wait_and_a_probe_reserves_nothing,
        CallWaitsForItsFirstTurn => waiting::a_call_waits_for_the_last_of_its_turns_or_reserves_none,
        LongLineForgotten => waiting::a_long_line_stays_as_it_is_under_another_quota,
    }
}
