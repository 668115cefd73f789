//! Defects of grants of as much as there is.

use tollgate_core::{Answer, Backend, Call, Charge, Decision, Mode, Receipt, Verdict};

use crate::broken::{Defect, Sound, are_found, at_once};

/// Takes an amount without a look at what is left, as a debt.
fn take(sound: &Sound, charge: &Charge<'_>, amount: u64) -> Verdict {
    let verdict = Verdict::allowed(charge, amount, 0);
    if let Some(receipt) = Receipt::of(charge, &verdict, sound.now()) {
        sound.backend.debit(&receipt, amount);
    }
    verdict
}

/// A grant is as large as a full budget, whatever was spent of it.
#[derive(Debug)]
struct GrantsAFullBudget;

impl Defect for GrantsAFullBudget {
    fn grant(&self, sound: &Sound, charges: &[Charge<'_>], _least: u64) -> Answer<Decision> {
        let granted = charges
            .iter()
            .map(|charge| take(sound, charge, charge.cost.min(charge.quota.capacity())));
        Answer::now(Ok(Decision::new(sound.now(), true, granted)))
    }
}

/// The first budget alone decides the amount.
#[derive(Debug)]
struct FirstBudgetDecides;

impl Defect for FirstBudgetDecides {
    fn grant(&self, sound: &Sound, charges: &[Charge<'_>], least: u64) -> Answer<Decision> {
        let [first, others @ ..] = charges else {
            return sound.backend.decide(Call::of(charges).at_least(least));
        };
        let said = at_once(sound.backend.decide(Call::of(&[*first]).at_least(least)));
        let amount = said.verdicts()[0].taken();
        let others = others.iter().map(|charge| take(sound, charge, amount));
        let verdicts = said.verdicts().iter().copied().chain(others);
        Answer::now(Ok(Decision::new(said.at(), said.is_admitted(), verdicts)))
    }
}

/// Any amount is granted, also one that is not worth it.
#[derive(Debug)]
struct BelowTheLeast;

impl Defect for BelowTheLeast {
    fn grant(&self, sound: &Sound, charges: &[Charge<'_>], _least: u64) -> Answer<Decision> {
        sound.backend.decide(Call::of(charges).at_least(1))
    }
}

/// A question takes what it asks about.
#[derive(Debug)]
struct ProbeTakes;

impl Defect for ProbeTakes {
    fn grant(&self, sound: &Sound, charges: &[Charge<'_>], least: u64) -> Answer<Decision> {
        let enforced = charges.iter().map(|charge| Charge {
            mode: Mode::Enforce,
            ..*charge
        });
        let enforced: Vec<_> = enforced.collect();
        sound.backend.decide(Call::of(&enforced).at_least(least))
    }
}

/// A grant says that it took what was asked for, so that more comes back than was taken.
#[derive(Debug)]
struct SaysWhatWasAskedFor;

impl Defect for SaysWhatWasAskedFor {
    fn grant(&self, sound: &Sound, charges: &[Charge<'_>], least: u64) -> Answer<Decision> {
        let said = at_once(sound.backend.decide(Call::of(charges).at_least(least)));
        let verdicts = (charges.iter().zip(said.verdicts()))
            .map(|(charge, verdict)| Verdict::allowed(charge, charge.cost, verdict.remaining()));
        Answer::now(Ok(Decision::new(said.at(), said.is_admitted(), verdicts)))
    }
}

/// Charges of different amounts are granted one after the other.
#[derive(Debug)]
struct GrantsOneByOne;

impl Defect for GrantsOneByOne {
    fn grant(&self, sound: &Sound, charges: &[Charge<'_>], least: u64) -> Answer<Decision> {
        let each = charges
            .iter()
            .map(|charge| at_once(sound.backend.decide(Call::of(&[*charge]).at_least(least))));
        let each: Vec<_> = each.collect();
        let admitted = each.iter().all(Decision::is_admitted);
        let verdicts = each.iter().map(|said| said.verdicts()[0]);
        Answer::now(Ok(Decision::new(sound.now(), admitted, verdicts)))
    }
}

#[tokio::test]
async fn each_defect_of_a_grant_fails_the_rule_that_it_breaks() {
    are_found! {
        GrantsAFullBudget => grants::a_grant_is_what_is_left_and_no_more,
        GrantsAFullBudget => grants::places_are_granted_as_units_are,
        FirstBudgetDecides => grants::a_grant_is_what_every_budget_has,
        FirstBudgetDecides => grants::a_grant_for_a_large_budget_is_what_a_small_one_beside_it_has,
        GrantsOneByOne => grants::a_grant_over_several_callers_is_what_each_has,
        GrantsOneByOne => grants::a_grant_of_different_amounts_is_an_error,
        BelowTheLeast => grants::a_grant_below_the_least_takes_nothing,
        ProbeTakes => grants::a_probe_of_a_grant_takes_nothing,
        SaysWhatWasAskedFor => grants::a_grant_is_given_back_as_it_was_taken,
    }
}
