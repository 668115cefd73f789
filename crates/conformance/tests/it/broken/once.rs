//! Defects of charges that count once.

use std::sync::{Mutex, PoisonError};

use tollgate_core::{Answer, Backend, Call, Charge, Decision, Receipt, Scope, Snapshot, Unit};

use crate::broken::{Defect, Sound, are_found, at_once};

/// No id is remembered, so that each replay is charged.
#[derive(Debug)]
struct ChargedTwice;

impl Defect for ChargedTwice {
    fn decide(&self, sound: &Sound, charges: &[Charge<'_>]) -> Answer<Decision> {
        for id in charges.iter().filter(|charge| charge.quota.is_once()) {
            let _forgotten = sound.backend.admin().reset(id.scope, id.key);
        }
        sound.backend.decide(Call::of(charges))
    }
}

/// Replays are not counted: a constant id gets around the limit.
#[derive(Debug)]
struct ReplaysWithoutEnd;

impl Defect for ReplaysWithoutEnd {
    fn decide(&self, sound: &Sound, charges: &[Charge<'_>]) -> Answer<Decision> {
        sound.change(Unit::Once, |state| {
            if let Snapshot::Once { replays, .. } = state {
                *replays = 0;
            }
        });
        sound.backend.decide(Call::of(charges))
    }
}

/// The life of an id is counted in whole milliseconds, so that it ends early.
#[derive(Debug)]
struct LifeEndsEarly;

impl Defect for LifeEndsEarly {
    fn decide(&self, sound: &Sound, charges: &[Charge<'_>]) -> Answer<Decision> {
        sound.change(Unit::Once, |state| {
            if let Snapshot::Once { until_us, .. } = state {
                *until_us -= *until_us % 1_000;
            }
        });
        sound.backend.decide(Call::of(charges))
    }
}

/// A denied request is remembered, so that its repetition passes.
#[derive(Debug)]
struct DenialRemembered;

impl Defect for DenialRemembered {
    fn decide(&self, sound: &Sound, charges: &[Charge<'_>]) -> Answer<Decision> {
        let said = at_once(sound.backend.decide(Call::of(charges)));
        if !said.is_admitted() {
            let ids = charges.iter().filter(|charge| charge.quota.is_once());
            for id in ids {
                let _remembered = sound.backend.decide(Call::of(&[*id]));
            }
        }
        Answer::now(Ok(said))
    }
}

/// A replay passes every budget of its call, and not its own policy's alone.
#[derive(Debug)]
struct SparesOtherBudgets;

impl Defect for SparesOtherBudgets {
    fn decide(&self, sound: &Sound, charges: &[Charge<'_>]) -> Answer<Decision> {
        let is_known = charges.iter().any(|charge| {
            let name = (charge.scope, charge.key.clone());
            charge.quota.is_once() && sound.backend.budgets().contains_key(&name)
        });
        sound.decide_changed(charges, |charge| {
            let is_spared = is_known && !charge.quota.is_once();
            let cost = if is_spared { 0 } else { charge.cost };
            Charge { cost, ..charge }
        })
    }
}

/// All policies have one list of ids.
#[derive(Debug, Default)]
struct IdOfAnotherPolicy(Mutex<Option<Scope>>);

impl Defect for IdOfAnotherPolicy {
    fn decide(&self, sound: &Sound, charges: &[Charge<'_>]) -> Answer<Decision> {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for id in charges.iter().filter(|charge| charge.quota.is_once()) {
            let first = *first.get_or_insert(id.scope);
            let mut states = sound.backend.budgets();
            if let Some(state) = states.get(&(first, id.key.clone())).cloned() {
                states.insert((id.scope, id.key.clone()), state);
            }
        }
        sound.backend.decide(Call::of(charges))
    }
}

/// A charge comes back although replays have passed on it.
#[derive(Debug)]
struct ReplayedAndGivenBack;

impl Defect for ReplayedAndGivenBack {
    fn refund(&self, sound: &Sound, receipt: Receipt, n: u64) {
        sound.change(Unit::Once, |state| {
            if let Snapshot::Once { replays, .. } = state {
                *replays = 0;
            }
        });
        sound.backend.refund(receipt, n);
    }
}

/// A charge that came back is replayed as if it had not.
#[derive(Debug)]
struct GivenBackAndReplayed;

impl Defect for GivenBackAndReplayed {
    fn refund(&self, sound: &Sound, receipt: Receipt, n: u64) {
        sound.backend.refund(receipt, n);
        sound.change(Unit::Once, |state| {
            if let Snapshot::Once { replays, .. } = state {
                *replays = 0;
            }
        });
    }
}

/// A charge with an id never comes back, not even in part.
#[derive(Debug)]
struct NothingComesBack;

impl Defect for NothingComesBack {
    fn refund(&self, _: &Sound, _: Receipt, _: u64) {}
}

#[tokio::test]
async fn each_defect_of_an_id_fails_the_rule_that_it_breaks() {
    are_found! {
        ChargedTwice => once::every_third_request_with_one_id_is_charged,
        ChargedTwice => once::an_id_on_trial_counts_once,
        ReplaysWithoutEnd => once::every_third_request_with_one_id_is_charged,
        LifeEndsEarly => once::an_id_is_forgotten_after_its_life,
        DenialRemembered => once::an_admission_is_remembered_and_a_denial_is_not,
        SparesOtherBudgets => once::an_id_spares_the_budgets_of_its_own_policy_alone,
        IdOfAnotherPolicy::default() => once::an_id_is_remembered_for_its_own_policy_and_caller,
        ReplayedAndGivenBack => once::a_charge_that_was_replayed_is_not_given_back,
        GivenBackAndReplayed => once::a_charge_that_is_given_back_is_replayed_by_none,
        NothingComesBack => once::a_charge_that_is_given_back_is_replayed_by_none,
        ReplayedAndGivenBack => once::a_part_of_a_charge_comes_back_as_the_whole_does,
        GivenBackAndReplayed => once::a_part_of_a_charge_comes_back_as_the_whole_does,
        NothingComesBack => once::a_part_of_a_charge_comes_back_as_the_whole_does,
    }
}
