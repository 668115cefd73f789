//! Defects of bans.

use std::time::Duration;

use tollgate_core::{
    Answer, Backend, BanList, BannedCaller, Call, Charge, Decision, Mode, Quota, Receipt, Scope,
    Snapshot, Unit,
};

use crate::broken::{Defect, Sound, are_found, at_once};

/// A ban is over with its last millisecond, because its end is stored in whole ones.
#[derive(Debug)]
struct EndsEarly;

impl Defect for EndsEarly {
    fn decide(&self, sound: &Sound, charges: &[Charge<'_>]) -> Answer<Decision> {
        sound.change(Unit::Ban, |state| {
            if let Snapshot::Ban { until_us, .. } = state {
                *until_us -= *until_us % 1_000;
            }
        });
        sound.backend.decide(Call::of(charges))
    }
}

/// Each knock at a banned caller's door begins the ban anew.
#[derive(Debug)]
struct KnockExtends;

impl Defect for KnockExtends {
    fn decide(&self, sound: &Sound, charges: &[Charge<'_>]) -> Answer<Decision> {
        sound.decide_by(charges, |charge| {
            let ban = charge.quota.ban().map(|ban| Quota::from(ban.extending()));
            ban.unwrap_or(*charge.quota)
        })
    }
}

/// Each ban is as long as the first.
#[derive(Debug)]
struct NeverDoubles;

impl Defect for NeverDoubles {
    fn decide(&self, sound: &Sound, charges: &[Charge<'_>]) -> Answer<Decision> {
        sound.change(Unit::Ban, |state| {
            if let Snapshot::Ban { level, .. } = state {
                *level = 0;
            }
        });
        sound.backend.decide(Call::of(charges))
    }
}

/// Each request renews the earlier strikes against its caller.
#[derive(Debug)]
struct StrikesNeverForgotten;

impl Defect for StrikesNeverForgotten {
    fn decide(&self, sound: &Sound, charges: &[Charge<'_>]) -> Answer<Decision> {
        let now = sound.now().as_micros();
        sound.change(Unit::Ban, |state| {
            if let Snapshot::Ban { strikes_us, .. } = state {
                strikes_us.fill(now);
            }
        });
        sound.backend.decide(Call::of(charges))
    }
}

/// A banned caller pays for requests that are refused.
#[derive(Debug)]
struct BannedCallerPays;

impl Defect for BannedCallerPays {
    fn decide(&self, sound: &Sound, charges: &[Charge<'_>]) -> Answer<Decision> {
        let said = at_once(sound.backend.decide(Call::of(charges)));
        let bans = charges.iter().zip(said.verdicts());
        let is_banned =
            { bans }.any(|(charge, verdict)| charge.quota.is_ban() && verdict.is_denied());
        let budgets = charges.iter().filter(|charge| !charge.quota.is_ban());
        let budgets: Vec<_> = budgets.copied().collect();
        if is_banned && !budgets.is_empty() {
            let _paid = sound.backend.decide(Call::of(&budgets));
        }
        Answer::now(Ok(said))
    }
}

/// A strike that comes behind its request is lost.
#[derive(Debug)]
struct LateStrikeLost;

impl Defect for LateStrikeLost {
    fn debit(&self, sound: &Sound, receipt: &Receipt, n: u64) {
        if !receipt.quota().is_ban() {
            sound.backend.debit(receipt, n);
        }
    }
}

/// A ban on trial is a ban.
#[derive(Debug)]
struct TrialKeepsOut;

impl Defect for TrialKeepsOut {
    fn decide(&self, sound: &Sound, charges: &[Charge<'_>]) -> Answer<Decision> {
        sound.decide_changed(charges, |charge| {
            let keeps_out = charge.quota.is_ban() && charge.mode == Mode::Shadow;
            let mode = if keeps_out {
                Mode::Enforce
            } else {
                charge.mode
            };
            Charge { mode, ..charge }
        })
    }
}

/// An operator's ban ends when it says, although a longer one is in force.
#[derive(Debug)]
struct ImposedBanShortens;

impl Defect for ImposedBanShortens {
    fn decide(&self, sound: &Sound, charges: &[Charge<'_>]) -> Answer<Decision> {
        for charge in charges {
            if charge.quota.is_ban() && charge.cost > 0 && charge.mode == Mode::Shadow {
                let _forgotten = sound.backend.admin().reset(charge.scope, charge.key);
            }
        }
        sound.backend.decide(Call::of(charges))
    }
}

/// The list has every caller with a strike.
#[derive(Debug)]
struct ListHasStrikes;

impl Defect for ListHasStrikes {
    fn bans(&self, sound: &Sound, scope: Scope) -> Answer<BanList> {
        let now = sound.now();
        let states = sound.backend.budgets();
        let of_scope = states.iter().filter(|((of, _), _)| *of == scope);
        let callers = of_scope.map(|((_, key), state)| {
            let left = state.banned_for(now).unwrap_or(Duration::ZERO);
            BannedCaller::new(key.clone(), left)
        });
        Answer::now(Ok(BanList::new(callers, true)))
    }
}

#[tokio::test]
async fn each_defect_of_a_ban_fails_the_rule_that_it_breaks() {
    are_found! {
        EndsEarly => bans::the_last_strike_bans_until_it_was_said,
        NeverDoubles => bans::the_last_strike_bans_until_it_was_said,
        KnockExtends => bans::a_ban_in_force_charges_nothing_and_does_not_feed_itself,
        BannedCallerPays => bans::a_ban_in_force_charges_nothing_and_does_not_feed_itself,
        StrikesNeverForgotten => bans::a_strike_is_forgotten_after_its_time,
        LateStrikeLost => bans::a_debit_of_a_ban_is_a_strike,
        ImposedBanShortens => bans::a_ban_is_imposed_at_once_and_ended_by_a_reset,
        TrialKeepsOut => bans::a_ban_on_trial_keeps_nobody_out,
        ListHasStrikes => bans::the_list_of_bans_has_those_in_force_and_no_others,
    }
}
