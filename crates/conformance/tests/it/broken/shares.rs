//! Defects of shares that are kept for a class.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tollgate_core::{Answer, Backend, Charge, Decision, Quota, Receipt, Scope, Verdict};

use crate::broken::{Defect, Sound, are_found};

/// All classes are judged by the quota of the most important, so that the others spend what is kept.
#[derive(Debug, Default)]
struct OthersTakeTheKeptShare(Mutex<HashMap<Scope, Quota>>);

impl Defect for OthersTakeTheKeptShare {
    fn decide(&self, sound: &Sound, charges: &[Charge<'_>]) -> Answer<Decision> {
        let mut largest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for charge in charges {
            let known = largest.entry(charge.scope).or_insert(*charge.quota);
            if known.capacity() < charge.quota.capacity() {
                *known = *charge.quota;
            }
        }
        sound.decide_by(charges, |charge| largest[&charge.scope])
    }
}

/// Each class has a budget of its own.
#[derive(Debug)]
struct ClassesCountApart;

impl Defect for ClassesCountApart {
    fn decide(&self, sound: &Sound, charges: &[Charge<'_>]) -> Answer<Decision> {
        sound.decide_changed(charges, |charge| {
            let name = format!("{}-{}", charge.scope.policy(), charge.quota.capacity());
            Charge {
                scope: Scope::of(&name, charge.scope.slot(), charge.quota),
                ..charge
            }
        })
    }
}

/// A unit that comes back is counted as if it had been taken just now, so that the others spend it again.
#[derive(Debug)]
struct OldChargesComeBack;

impl Defect for OldChargesComeBack {
    fn refund(&self, sound: &Sound, receipt: Receipt, n: u64) {
        let charge = Charge {
            scope: receipt.scope(),
            quota: receipt.quota(),
            key: receipt.key(),
            cost: receipt.cost(),
            mode: tollgate_core::Mode::Enforce,
        };
        let taken = Verdict::allowed(&charge, receipt.cost(), 0);
        if let Some(newer) = Receipt::of(&charge, &taken, sound.now()) {
            sound.backend.refund(newer, n);
        }
    }
}

#[tokio::test]
async fn each_defect_of_a_share_fails_the_rule_that_it_breaks() {
    are_found! {
        OthersTakeTheKeptShare::default() =>
            shares::a_class_leaves_what_is_kept_and_the_important_may_use_it,
        ClassesCountApart => shares::a_class_leaves_what_is_kept_and_the_important_may_use_it,
        OldChargesComeBack =>
            shares::whatever_is_credited_no_class_spends_what_is_kept_from_it,
    }
}
