//! Defects of quotas, and of calls of several charges.

use std::sync::{Mutex, PoisonError};

use tollgate_core::{
    Answer, Backend, Call, Charge, Decision, Mode, Receipt, Scope, State, Timestamp,
};

use crate::broken::{Defect, Sound, are_found, at_once};

/// A denied call takes the charges that fit.
#[derive(Debug)]
struct NotAllOrNothing;

impl Defect for NotAllOrNothing {
    fn decide(&self, sound: &Sound, charges: &[Charge<'_>]) -> Answer<Decision> {
        let each_alone = sound.decide_changed(charges, |charge| match charge.mode {
            Mode::Enforce => Charge {
                mode: Mode::Shadow,
                ..charge
            },
            _ => charge,
        });
        each_alone.map(|result| {
            result.map(|said| {
                let admits = said.verdicts().iter().all(|verdict| !verdict.is_denied());
                Decision::new(said.at(), admits, said.verdicts().iter().copied())
            })
        })
    }
}

/// Each charge is decided without the others of its call.
#[derive(Debug)]
struct OneByOne;

impl Defect for OneByOne {
    fn decide(&self, sound: &Sound, charges: &[Charge<'_>]) -> Answer<Decision> {
        if charges.is_empty() {
            return sound.backend.decide(Call::of(charges));
        }
        let each = charges
            .iter()
            .map(|charge| at_once(sound.backend.decide(Call::of(std::slice::from_ref(charge)))));
        let each: Vec<_> = each.collect();
        let verdicts = each.iter().map(|said| said.verdicts()[0]);
        let admitted = each.iter().all(Decision::is_admitted);
        Answer::now(Ok(Decision::new(each[0].at(), admitted, verdicts)))
    }
}

/// Nothing is ever given back.
#[derive(Debug)]
struct LosesCredits;

impl Defect for LosesCredits {
    fn refund(&self, _sound: &Sound, _receipt: Receipt, _n: u64) {}
}

/// Every quota of a policy shares one budget of the key.
#[derive(Debug, Default)]
struct SharesBudgets(Mutex<Option<Scope>>);

impl SharesBudgets {
    fn shared(&self, scope: Scope) -> Scope {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = *first.get_or_insert(scope);
        if first.unit() == scope.unit() {
            first
        } else {
            scope
        }
    }
}

impl Defect for SharesBudgets {
    fn decide(&self, sound: &Sound, charges: &[Charge<'_>]) -> Answer<Decision> {
        sound.decide_changed(charges, |charge| Charge {
            scope: self.shared(charge.scope),
            ..charge
        })
    }
}

/// Each question is answered, and nothing is remembered.
#[derive(Debug)]
struct ForgetsEverything;

impl Defect for ForgetsEverything {
    fn decide(&self, _sound: &Sound, charges: &[Charge<'_>]) -> Answer<Decision> {
        let full = charges.iter().map(|charge| State::full(charge.quota));
        let mut states: Vec<_> = full.collect();
        let now = Timestamp::from_micros(1);
        Answer::now(Ok(tollgate_core::decide(
            now,
            Call::of(charges),
            &mut states[..],
        )))
    }
}

/// The time stands at the start.
#[derive(Debug)]
struct StandsStill;

impl Defect for StandsStill {
    fn decide(&self, sound: &Sound, charges: &[Charge<'_>]) -> Answer<Decision> {
        sound.backend.decide(Call::of(charges)).map(|result| {
            result.map(|said| {
                let verdicts = said.verdicts().iter().copied();
                Decision::new(Timestamp::from_micros(1), said.is_admitted(), verdicts)
            })
        })
    }
}

#[tokio::test]
async fn each_defect_of_a_budget_fails_the_rule_that_it_breaks() {
    are_found! {
        NotAllOrNothing => calls::the_largest_call_is_all_or_nothing,
        NotAllOrNothing =>
            calls::pitfall_the_first_of_several_limits_was_charged_although_the_second_denied,
        OneByOne => calls::the_same_key_twice_is_one_charge_of_the_summed_cost,
        LosesCredits => undo::a_credit_gives_back_what_was_taken,
        SharesBudgets::default() => identities::every_quota_of_a_policy_has_its_own_budget,
        ForgetsEverything => amounts::a_budget_admits_what_it_holds_and_not_one_more,
        ForgetsEverything => promises::retry_after_is_kept_to_the_microsecond,
        StandsStill => amounts::verdicts_carry_the_time_of_the_backend,
    }
}
